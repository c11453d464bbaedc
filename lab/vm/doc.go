// Package vm boots a stock distribution kernel in QEMU with hitless as its only program: plan in, history out. The
// guest is a pure function of its inputs: with the virtual clock the same plan gives the same history, byte for byte.
//
// Its region, image and CPUs serve lab/host too, which runs the same guest without the machine.
//
// It knows nothing of what the plan says or what the guest does with it.
package vm
