package vm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// pciID is a PCI device of the guest: vendor and device ID, and how many devices of this kind are before it on the bus.
type pciID struct {
	kind  string
	index int
}

// The guest's PCI devices.
var (
	regionDevice = pciID{ivshmem, 0}
	filesDevice  = pciID{ivshmem, 1}
	pauseDevice  = pciID{"0x1b36 0x0011", 0} // pvpanic-pci
)

const ivshmem = "0x1af4 0x1110" // ivshmem-plain

// pciDevice enables the guest's device and returns its sysfs directory, empty if there is none. The device needs no
// driver.
func pciDevice(id pciID) (string, error) {
	devices, _ := filepath.Glob("/sys/bus/pci/devices/*")
	before := 0
	for _, dev := range devices {
		vendor, _ := os.ReadFile(filepath.Join(dev, "vendor"))
		device, _ := os.ReadFile(filepath.Join(dev, "device"))
		if strings.TrimSpace(string(vendor))+" "+strings.TrimSpace(string(device)) != id.kind {
			continue
		}
		if before++; before <= id.index {
			continue
		}
		if err := os.WriteFile(filepath.Join(dev, "enable"), []byte("1"), 0); err != nil {
			return "", fmt.Errorf("enabling the device %s: %w", id.kind, err)
		}
		return dev, nil
	}
	return "", nil
}

// Pause stops the guest between two instructions until the host resumes it with another plan in the region. A
// snapshot taken meanwhile starts there any number of times, and the guest sees no difference: its clock stands
// still. With the real-time clock Pause does nothing.
//
// Pause writes to the pvpanic device (QEMU's docs/specs/pvpanic); QEMU stops the guest on its panic event.
func Pause() error {
	dev, err := pciDevice(pauseDevice)
	if dev == "" || err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dev, "resource0"), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("opening the pause device: %w", err)
	}
	defer f.Close()
	register, err := mapFile(f, 0, os.Getpagesize(), true)
	if err != nil {
		return fmt.Errorf("mapping the pause device: %w", err)
	}
	register[0] = 1
	return unmap(register)
}

// OpenRegion maps the region inside the guest: BAR 2 of its device.
func OpenRegion() ([]byte, error) {
	dev, err := pciDevice(regionDevice)
	if err != nil {
		return nil, err
	}
	if dev == "" {
		return nil, errors.New("the guest has no device with the region: it was not booted by hitless")
	}
	f, err := os.OpenFile(filepath.Join(dev, "resource2"), os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the region: %w", err)
	}
	defer f.Close()
	return MapRegion(f)
}
