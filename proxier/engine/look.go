package engine

import "github.com/hitless/hitless/proxier/kernel"

// Look reads one of the proxier's virtual servers, another one in each call. It returns the key of one that the kernel lacks although no
// operation on it has failed: another program has deleted it, of which the kernel sends no notification. It reads nothing before the first full
// pass, and while one must be repeated.
func (e *Engine) Look() (key kernel.Key, missing bool, err error) {
	key, exists := e.state.After(e.looked)
	if !exists || e.readFailed {
		return kernel.Key{}, false, nil
	}
	if e.looked = key; e.unverified.keys[key] {
		return kernel.Key{}, false, nil // the next pass reads it
	}
	_, found, err := e.kernel.Server(key)
	return key, err == nil && !found, err
}
