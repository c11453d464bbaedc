package vm

import (
	"bytes"
	"encoding/binary"
)

// signatureMark ends a signed module (scripts/sign-file of Linux).
var signatureMark = []byte("~Module signature appended~\n")

// unsigned is a module without the signature that its distribution has put behind it. The guest has what the host has verified, runs
// alone, and would need more instructions to verify 60 signatures than for all else until it is up; and IPVS comes to life when
// its module has been verified, which must be at a time of our own choice (topology.Rhythm). A kernel that insists on
// signatures refuses such modules; those of a guest are started without.
func unsigned(module []byte) []byte {
	rest, signed := bytes.CutSuffix(module, signatureMark)
	// Before the mark stands a struct module_signature of 12 bytes, whose last 4 are the signature's length, and before that the signature.
	const header = 12
	if !signed || len(rest) < header {
		return module
	}
	length := int64(binary.BigEndian.Uint32(rest[len(rest)-4:]))
	if length+header > int64(len(rest)) {
		return module
	}
	return rest[:int64(len(rest))-header-length]
}
