package grpchealth

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hitless/hitless/internal/testfiles"
)

// server answers the health check of one service with a message, and any other service with gRPC's NOT_FOUND.
func server(t *testing.T, service, message string) string {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/grpc.health.v1.Health/Check" || r.Header.Get("Content-Type") != "application/grpc" {
			http.Error(w, "no health check", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		if !strings.HasSuffix(string(asked), service) {
			w.Header().Set("Grpc-Status", "5")
			return
		}
		_, _ = io.WriteString(w, message)
		w.Header().Set("Grpc-Status", "0")
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func TestCheck(t *testing.T) {
	for name, test := range map[string]struct {
		message, asked string
		healthy        bool
	}{
		"serving":           {"\x00\x00\x00\x00\x02\x08\x01", "db", true},
		"serving, and more": {"\x00\x00\x00\x00\x04\x10\x07\x08\x01", "db", true},
		"not serving":       {"\x00\x00\x00\x00\x02\x08\x02", "db", false},
		"unknown":           {"\x00\x00\x00\x00\x00", "db", false},
		"damaged":           {"\x00\x00\x00\x00\x09\x08\x01", "db", false},
		"empty":             {"", "db", false},
		"another service":   {"\x00\x00\x00\x00\x02\x08\x01", "mail", false},
	} {
		t.Run(name, func(t *testing.T) {
			err := Check(t.Context(), (&net.Dialer{}).DialContext, server(t, "db", test.message), test.asked)
			if (err == nil) != test.healthy {
				t.Errorf("%v; want healthy: %v", err, test.healthy)
			}
		})
	}
}

func TestCheckOfNoServer(t *testing.T) {
	if err := Check(t.Context(), (&net.Dialer{}).DialContext, testfiles.Refusing(t).String(), ""); err == nil {
		t.Error("a closed port is healthy")
	}
}
