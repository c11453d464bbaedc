package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

// A certificate is valid from long before the lab's clock to long after: a guest's clock is fixed, and a soak lasts for
// days of virtual time.
const (
	validBefore = 365 * 24 * time.Hour
	validAfter  = 10 * 365 * 24 * time.Hour
)

// authority issues the certificates of one control plane. Keys are ECDSA P-256: making an RSA key takes seconds in an
// emulated guest.
type authority struct {
	now    func() time.Time
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	pem    []byte
	serial int64
}

// pair is a certificate and its key, both PEM.
type pair struct{ cert, key []byte }

func newAuthority(now func() time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of the certificate authority: %w", err)
	}
	a := &authority{now: now, key: key}
	template := a.template("hitless lab")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making the certificate authority: %w", err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("reading the certificate authority back: %w", err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a, nil
}

func (a *authority) template(name string, groups ...string) *x509.Certificate {
	a.serial++
	return &x509.Certificate{
		SerialNumber: big.NewInt(a.serial),
		Subject:      pkix.Name{CommonName: name, Organization: groups},
		NotBefore:    a.now().Add(-validBefore),
		NotAfter:     a.now().Add(validAfter),
	}
}

// client issues a client certificate: the common name is the user, the organizations are the groups
// (https://kubernetes.io/docs/reference/access-authn-authz/authentication/#x509-client-certificates).
func (a *authority) client(user string, groups ...string) (pair, error) {
	template := a.template(user, groups...)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

// server issues a serving certificate for addresses and names.
func (a *authority) server(name string, addrs []netip.Addr, names ...string) (pair, error) {
	template := a.template(name)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames = names
	for _, addr := range addrs {
		template.IPAddresses = append(template.IPAddresses, net.IP(addr.AsSlice()))
	}
	return a.issue(template)
}

func (a *authority) issue(template *x509.Certificate) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("making the key of %s: %w", template.Subject.CommonName, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return pair{}, fmt.Errorf("making the certificate of %s: %w", template.Subject.CommonName, err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return pair{}, fmt.Errorf("writing the key of %s: %w", template.Subject.CommonName, err)
	}
	return pair{cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key: keyPEM}, nil
}

// encodeKey writes the SEC 1 form: the API server reads no other one for the key of service account tokens.
func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// write puts the pair into dir as name.crt and name.key.
func (p pair) write(dir, name string) error {
	if err := os.WriteFile(filepath.Join(dir, name+".crt"), p.cert, 0o644); err != nil {
		return fmt.Errorf("writing the certificate of %s: %w", name, err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".key"), p.key, 0o600); err != nil {
		return fmt.Errorf("writing the key of %s: %w", name, err)
	}
	return nil
}
