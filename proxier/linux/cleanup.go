package linux

import (
	"errors"
	"fmt"

	"github.com/hitless/hitless/proxier/kernel"
)

// Cleanup removes the proxier's state from the kernel and returns the number of deleted virtual servers: recorded
// virtual servers, the virtual addresses with their device, and the nftables tables. Virtual servers for which keep
// returns true stay for another proxy; nil keeps none. Sysctls stay. The tables with the ownership record are removed
// last, so a failed Cleanup can be repeated. The Kernel must not be used afterwards.
func (k *Kernel) Cleanup(keep func(kernel.Key) bool) (int, error) {
	elements, err := k.Elements()
	if err != nil {
		return 0, err
	}
	own := map[kernel.Key]bool{}
	for _, e := range elements {
		if e.Set.RecordsOwnership() && (keep == nil || !keep(e.Key)) {
			own[e.Key] = true
		}
	}
	var failed []error
	for key := range own {
		if err := k.ipvs.deleteVirtual(key); err != nil {
			failed = append(failed, fmt.Errorf("deleting virtual server %v: %w", key, err))
		}
	}
	if err := k.addresses.remove(); err != nil {
		failed = append(failed, err)
	}
	if len(failed) > 0 {
		return 0, errors.Join(failed...)
	}
	return len(own), k.filter.remove()
}

// remove deletes the local routes, and the device with its addresses.
func (a *addresses) remove() error {
	if err := a.removeRoutes(); err != nil {
		return err
	}
	if err := a.checkTimeout(a.netlink.LinkDel(a.device)); err != nil {
		return fmt.Errorf("deleting the device %s: %w", Device, err)
	}
	return nil
}

func (f *filter) remove() error {
	c, err := f.conn()
	if err != nil {
		return err
	}
	for _, family := range f.families {
		c.AddTable(family.table) // deleting a missing table would be an error
		c.DelTable(family.table)
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("deleting the nftables tables %s: %w", Table, f.checkTimeout(err))
	}
	return nil
}
