//go:build !unix

package input

// dontWait has no bits: nothing that is opened as a file waits here.
const dontWait = 0
