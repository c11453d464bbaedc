package site

import "runtime"

// CheckPlatform returns a UsageError where no guest can run. Guests are linux/amd64 everywhere.
func CheckPlatform() error { return checkPlatform(runtime.GOOS, runtime.GOARCH) }

func checkPlatform(system, processor string) error {
	if system == "linux" || system == "darwin" {
		return nil
	}
	return Usagef("a lab needs Linux or macOS, and this is %s/%s: run it on such a machine, or name a live cluster with --kubeconfig FILE", system, processor)
}

// CheckHostPlatform returns a UsageError where no lab can run in namespaces of this machine's kernel: its programs are linux/amd64.
func CheckHostPlatform() error { return checkHostPlatform(runtime.GOOS, runtime.GOARCH) }

func checkHostPlatform(system, processor string) error {
	if system == "linux" && processor == "amd64" {
		return nil
	}
	return Usagef("a lab on this machine's kernel needs Linux on amd64, and this is %s/%s; run a scenario in a VM: --kernel vm", system, processor)
}
