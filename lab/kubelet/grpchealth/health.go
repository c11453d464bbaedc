// Package grpchealth asks a server of gRPC for its health (https://github.com/grpc/grpc/blob/master/doc/health-checking.md). The message has
// one field, which does not justify the modules of gRPC.
package grpchealth

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"google.golang.org/protobuf/encoding/protowire"
)

// serving is the status of a healthy server.
const serving = 1

// prefix is the length of what stands before each message: whether it is compressed, and its length.
const prefix = 5

// maxAnswer bounds the answer, in bytes.
const maxAnswer = 4096

// Check asks for the health of a service, which may be empty, and returns an error unless the server serves it. address is host:port.
func Check(ctx context.Context, dial func(ctx context.Context, network, address string) (net.Conn, error), address, service string) error {
	transport := &http.Transport{DialContext: dial, Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	var message []byte
	if service != "" {
		message = protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), service)
	}
	body := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/grpc.health.v1.Health/Check", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}, "User-Agent": {"kube-probe/1.37"}}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("asking for the health of %s: %w", address, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("asking for the health of %s: %w", address, err)
	}
	for _, h := range []http.Header{resp.Header, resp.Trailer} {
		if code := h.Get("Grpc-Status"); code != "" && code != "0" {
			return fmt.Errorf("asking for the health of %s: gRPC status %s %s", address, code, h.Get("Grpc-Message"))
		}
	}
	status, err := parse(answer)
	if err == nil && status != serving {
		err = fmt.Errorf("its status is %d, not %d (SERVING)", status, serving)
	}
	if err != nil {
		return fmt.Errorf("the health of %s: %w", address, err)
	}
	return nil
}

// parse returns the status of an answer.
func parse(answer []byte) (uint64, error) {
	if len(answer) < prefix || answer[0] != 0 || uint64(binary.BigEndian.Uint32(answer[1:])) != uint64(len(answer)-prefix) {
		return 0, errors.New("its answer is no message of gRPC")
	}
	for rest := answer[prefix:]; len(rest) > 0; {
		number, kind, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return 0, protowire.ParseError(n)
		}
		rest = rest[n:]
		if number == 1 && kind == protowire.VarintType {
			status, n := protowire.ConsumeVarint(rest)
			if n < 0 {
				return 0, protowire.ParseError(n)
			}
			return status, nil
		}
		if n = protowire.ConsumeFieldValue(number, kind, rest); n < 0 {
			return 0, protowire.ParseError(n)
		}
		rest = rest[n:]
	}
	return 0, nil // the default of a field that is left out: UNKNOWN
}
