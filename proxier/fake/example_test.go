package fake_test

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/hitless/hitless/proxier/fake"
	"github.com/hitless/hitless/proxier/kernel"
)

var (
	web = kernel.Key{Addr: netip.MustParseAddr("10.96.0.10"), Protocol: kernel.TCP, Port: 80}
	pod = netip.MustParseAddrPort("10.244.1.1:8080")
)

// serve is code under test: it takes a kernel.Kernel, the real one or a fake.
func serve(k kernel.Kernel) error {
	for _, op := range []kernel.Op{kernel.AddVirtual{Virtual: kernel.Virtual{Key: web, Scheduler: "rr"}}, kernel.AddReal{Key: web, Real: pod, Weight: 1},
		kernel.Bind{Addr: web.Addr}} {
		if err := k.Apply(op); err != nil {
			return err
		}
	}
	return nil
}

// A promise that has to hold at every moment is checked after every single operation: here, that no address is bound before
// somebody serves it.
func Example() {
	k := fake.New(netip.MustParseAddr("192.0.2.1"))
	k.After(func(op kernel.Op) {
		if k.State().Bound(web.Addr) && len(k.State().Reals(web)) == 0 {
			fmt.Println("a hole after", op)
		}
	})
	if err := serve(k); err != nil {
		fmt.Println(err)
	}
	for _, op := range k.Ops() {
		fmt.Println(op)
	}
	// Output:
	// add-virtual 10.96.0.10:80/tcp
	// add-real 10.96.0.10:80/tcp 10.244.1.1:8080 weight 1
	// bind 10.96.0.10
}

// Any operation can be made to fail, to lose its reply, or to be the last of the process.
func ExampleKernel_FailAt() {
	k := fake.New()
	k.FailAt(1, fake.Die)
	err := serve(k)
	fmt.Println(errors.Is(err, fake.ErrInjected), err)
	_, err = k.Servers()
	fmt.Println(err)
	k.Revive() // the next process finds what the first one left
	servers, err := k.Servers()
	fmt.Println(len(servers), len(servers[0].Reals), err)
	// Output:
	// true add-real 10.96.0.10:80/tcp 10.244.1.1:8080 weight 1: injected failure
	// reading: injected failure
	// 1 0 <nil>
}

// It refuses what a kernel refuses, and counts the connections that an operation cuts.
func ExampleKernel_Connect() {
	k := fake.New()
	fmt.Println(k.Apply(kernel.AddReal{Key: web, Real: pod, Weight: 1}))
	fmt.Println(serve(k))
	k.Connect(web, pod, 8, 0)
	fmt.Println(k.Apply(kernel.SetWeight{Key: web, Real: pod, Weight: 0}), k.Cut())
	fmt.Println(k.Apply(kernel.DeleteReal{Key: web, Real: pod}), k.Cut())
	// Output:
	// add-real 10.96.0.10:80/tcp 10.244.1.1:8080 weight 1: impossible operation: virtual server 10.96.0.10:80/tcp does not exist
	// <nil>
	// <nil> 0
	// <nil> 8
}
