package kube

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// bootOfGuest is a fixed clock like the guest's, far from the clock of the machine that runs the test.
var bootOfGuest = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func testAuthority(t *testing.T) *authority {
	t.Helper()
	a, err := newAuthority(func() time.Time { return bootOfGuest })
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func parse(t *testing.T, p pair) *x509.Certificate {
	t.Helper()
	if _, err := tls.X509KeyPair(p.cert, p.key); err != nil {
		t.Fatalf("certificate and key do not belong together: %v", err)
	}
	block, _ := pem.Decode(p.cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestCertificatesAreValidForYearsAroundTheClock(t *testing.T) {
	a := testAuthority(t)
	p, err := a.server("api", []netip.Addr{netip.MustParseAddr("10.0.0.2")}, "kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	cert := parse(t, p)
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	tests := []struct {
		name  string
		host  string
		at    time.Duration // after the guest's boot
		usage x509.ExtKeyUsage
		good  bool
	}{
		{"address", "10.0.0.2", 0, x509.ExtKeyUsageServerAuth, true},
		{"name", "kubernetes", 0, x509.ExtKeyUsageServerAuth, true},
		{"a clock that is a month behind", "kubernetes", -30 * 24 * time.Hour, x509.ExtKeyUsageServerAuth, true},
		{"a soak of a year", "kubernetes", 365 * 24 * time.Hour, x509.ExtKeyUsageServerAuth, true},
		{"another address", "10.0.0.3", 0, x509.ExtKeyUsageServerAuth, false},
		{"as a client", "kubernetes", 0, x509.ExtKeyUsageClientAuth, false},
		{"eleven years later", "kubernetes", 11 * 365 * 24 * time.Hour, x509.ExtKeyUsageServerAuth, false},
	}
	for _, tt := range tests {
		_, err := cert.Verify(x509.VerifyOptions{DNSName: tt.host, Roots: roots, CurrentTime: bootOfGuest.Add(tt.at),
			KeyUsages: []x509.ExtKeyUsage{tt.usage}})
		if (err == nil) != tt.good {
			t.Errorf("%s: %v, want good=%v", tt.name, err, tt.good)
		}
	}
}

func TestClientCertificateNamesUserAndGroup(t *testing.T) {
	a := testAuthority(t)
	p, err := a.client("proxy", mastersGroup)
	if err != nil {
		t.Fatal(err)
	}
	q, err := a.client("other", mastersGroup)
	if err != nil {
		t.Fatal(err)
	}
	cert, other := parse(t, p), parse(t, q)
	if cert.Subject.CommonName != "proxy" || !slices.Equal(cert.Subject.Organization, []string{mastersGroup}) {
		t.Errorf("subject %s, want proxy in %s", cert.Subject, mastersGroup)
	}
	if cert.SerialNumber.Cmp(other.SerialNumber) == 0 {
		t.Error("two certificates have one serial number")
	}
	roots := x509.NewCertPool()
	roots.AddCert(testAuthority(t).cert)
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: bootOfGuest,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err == nil {
		t.Error("another lab's authority accepts the certificate")
	}
}
