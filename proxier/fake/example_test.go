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

// serve is code under test: it uses a kernel.Kernel, real or fake.
func serve(k kernel.Kernel) error {
	for _, op := range []kernel.Op{kernel.AddVirtual{Virtual: kernel.Virtual{Key: web, Scheduler: "rr"}}, kernel.AddReal{Key: web, Real: pod, Weight: 1},
		kernel.Bind{Addr: web.Addr}} {
		if err := k.Apply(op); err != nil {
			return err
		}
	}
	return nil
}

// OnApply checks an invariant after every operation, here that no address is bound before a real server serves it.
func Example() {
	k := fake.New(netip.MustParseAddr("192.0.2.1"))
	k.OnApply(func(op kernel.Op) {
		if k.State().Bound(web.Addr) && len(k.State().Reals(web)) == 0 {
			fmt.Println("an address without a real server after", op)
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

// Any operation can fail, lose its reply, or be the last of the process.
func ExampleKernel_FailAt() {
	k := fake.New()
	k.FailAt(1, fake.Crash)
	err := serve(k)
	fmt.Println(errors.Is(err, fake.ErrInjected), err)
	_, err = k.Servers()
	fmt.Println(err)
	k.ClearFaults() // the next process finds the state of the first one
	servers, err := k.Servers()
	fmt.Println(len(servers), len(servers[0].Reals), err)
	// Output:
	// true add-real 10.96.0.10:80/tcp 10.244.1.1:8080 weight 1: injected failure
	// reading: injected failure
	// 1 0 <nil>
}

// The fake rejects what a kernel rejects, and counts the connections that an operation cuts.
func ExampleKernel_SetConnections() {
	k := fake.New()
	fmt.Println(k.Apply(kernel.AddReal{Key: web, Real: pod, Weight: 1}))
	fmt.Println(serve(k))
	k.SetConnections(web, pod, 8, 0)
	fmt.Println(k.Apply(kernel.SetWeight{Key: web, Real: pod, Weight: 0}), k.CutConnections())
	fmt.Println(k.Apply(kernel.DeleteReal{Key: web, Real: pod}), k.CutConnections())
	// Output:
	// add-real 10.96.0.10:80/tcp 10.244.1.1:8080 weight 1: invalid operation: virtual server 10.96.0.10:80/tcp does not exist
	// <nil>
	// <nil> 0
	// <nil> 8
}
