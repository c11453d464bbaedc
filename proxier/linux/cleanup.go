package linux

import (
	"errors"
	"fmt"

	"github.com/hitless/hitless/proxier/kernel"
)

// Cleanup takes everything of the proxier out of the kernel, and returns how many virtual servers that were: those that are
// on record as its own, its device with all virtual addresses, and its nftables tables. Virtual servers that keep says so of
// stay, for the proxy that goes on with them; nil keeps none. Sysctls stay as they are. The record goes last, so that what
// fails can be tried again. The kernel cannot be used after it.
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
		if err := k.ipvs.delete(key); err != nil {
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

func (a *addresses) remove() error {
	if err := a.checked(a.netlink.LinkDel(a.device)); err != nil {
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
		c.AddTable(family.table) // to delete one that is gone would be an error
		c.DelTable(family.table)
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("deleting the nftables tables %s: %w", Table, f.checked(err))
	}
	return nil
}
