//go:build !unix

package vm

import (
	"errors"
	"os"
)

func mapFile(*os.File, int64, int, bool) ([]byte, error) { return nil, errors.ErrUnsupported }

func unmap([]byte) error { return errors.ErrUnsupported }

func socketPair() ([2]int, error) { return [2]int{}, errors.ErrUnsupported }

func rights(int) []byte { return nil }

func kernelRelease() (string, error) { return "", errors.ErrUnsupported }
