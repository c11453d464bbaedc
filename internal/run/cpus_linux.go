package run

import "golang.org/x/sys/unix"

// ownCPUs is the number of CPUs that this process may use.
func ownCPUs() (int, error) {
	var cpus unix.CPUSet
	err := unix.SchedGetaffinity(0, &cpus)
	return cpus.Count(), err
}
