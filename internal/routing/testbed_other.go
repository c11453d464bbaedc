//go:build !linux

package routing

import (
	"errors"
	"runtime"

	objects "k8s.io/apimachinery/pkg/runtime"
)

type namespace = struct{}

// Testbed needs network namespaces, which only Linux has.
type Testbed struct{ family Family }

var errNoTestbed = errors.New("checking Services needs the network namespaces of Linux, and this is " + runtime.GOOS)

// Apply fails: there is no testbed here.
func (*Testbed) Apply(...objects.Object) error { return errNoTestbed }

func (*Testbed) remove(string, string, string) error { return errNoTestbed }
