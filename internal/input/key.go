package input

import (
	"context"
	"fmt"
)

// ReadKey reads the key file of a flag, with the limits of Read; nil where no file is given. parse gets the name of the file for its errors.
func ReadKey[K ~[]byte](ctx context.Context, flag, file string, parse func(file string, text []byte) (K, error)) (K, error) {
	if file == "" {
		return nil, nil
	}
	text, err := Read(ctx, file, TextBytes)
	if err != nil {
		return nil, fmt.Errorf("%s: reading the key: %w", flag, err)
	}
	key, err := parse(file, text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return key, nil
}
