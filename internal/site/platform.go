package site

import "runtime"

// CheckPlatform returns a UsageError where no lab can run. A port of the lab begins here: its guests are linux/amd64 everywhere.
func CheckPlatform() error { return checkPlatform(runtime.GOOS, runtime.GOARCH) }

func checkPlatform(system, processor string) error {
	if system == "linux" && processor == "amd64" {
		return nil
	}
	return Usagef("a lab needs Linux on amd64, and this is %s/%s: run it on such a machine, or name a live cluster with --kubeconfig FILE", system, processor)
}
