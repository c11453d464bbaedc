package record

import (
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// SigningKey parses a private ed25519 key in a PEM file (PKCS #8), as `openssl genpkey -algorithm ed25519` writes it. file is its name in errors.
func SigningKey(file string, text []byte) (ed25519.PrivateKey, error) {
	kind, der, err := parseKey(file, text)
	if err != nil {
		return nil, err
	}
	if kind == "PUBLIC KEY" {
		return nil, fmt.Errorf("the key %s is a public one; signing needs the private one", file)
	}
	any, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("reading the key %s: %w; `openssl genpkey -algorithm ed25519 -out FILE` makes one", file, err)
	}
	key, is := any.(ed25519.PrivateKey)
	if !is {
		return nil, fmt.Errorf("the key %s is no ed25519 key; `openssl genpkey -algorithm ed25519 -out FILE` makes one", file)
	}
	return key, nil
}

// VerifyingKey parses a public ed25519 key in a PEM file (PKIX), as `openssl pkey -in KEY -pubout` writes it. file is its name in errors.
func VerifyingKey(file string, text []byte) (ed25519.PublicKey, error) {
	kind, der, err := parseKey(file, text)
	if err != nil {
		return nil, err
	}
	if kind == "PRIVATE KEY" {
		return nil, fmt.Errorf("the key %s is a private one; verifying needs the public one: `openssl pkey -in %s -pubout -out FILE` writes it", file, file)
	}
	any, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, fmt.Errorf("reading the key %s: %w; `openssl pkey -in KEY -pubout -out FILE` writes one", file, err)
	}
	key, is := any.(ed25519.PublicKey)
	if !is {
		return nil, fmt.Errorf("the key %s is no ed25519 key; give the public key of the ed25519 key that signed the seal", file)
	}
	return key, nil
}

// parseKey returns the kind and content of the first PEM block of a file.
func parseKey(file string, text []byte) (kind string, der []byte, err error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return "", nil, fmt.Errorf("the key %s is no PEM file; `openssl genpkey -algorithm ed25519 -out FILE` makes one", file)
	}
	return block.Type, block.Bytes, nil
}

// signerOf names a key: the SHA-256 of its PKIX form.
func signerOf(key ed25519.PublicKey) string {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}

// Sign returns the signature of a text in a word of ASCII, and the name of its key.
func Sign(key ed25519.PrivateKey, text []byte) (signer, signature string) {
	return signerOf(key.Public().(ed25519.PublicKey)), base64.StdEncoding.EncodeToString(ed25519.Sign(key, text))
}

// VerifySignature checks that a text is signed with the private part of a key. what names the text in errors.
func VerifySignature(key ed25519.PublicKey, what string, text []byte, signer, signature string) error {
	if signature == "" {
		return fmt.Errorf("%s is not signed", what)
	}
	if signer != signerOf(key) {
		return fmt.Errorf("%s is signed with the key %s, not with %s", what, cmp.Or(strings.ToValidUTF8(signer, "?"), "(unnamed)"), signerOf(key))
	}
	raw, err := base64.StdEncoding.DecodeString(signature)
	if err != nil || !ed25519.Verify(key, text, raw) {
		return errors.New("the signature of " + what + " is wrong")
	}
	return nil
}
