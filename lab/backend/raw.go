package backend

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// listeners are the open ports of a backend; udp and tcp are nil when off.
type listeners struct {
	http, tcp net.Listener
	udp       net.PacketConn
}

func (l *listeners) close() {
	l.http.Close()
	if l.udp != nil {
		l.udp.Close()
	}
	if l.tcp != nil {
		l.tcp.Close()
	}
}

// KeepAlive is the interval of TCP keep-alives: less than 15 minutes, after which IPVS drops an idle connection (ip_vs(8),
// tcp timeout), but long enough to cause few wake-ups.
const KeepAlive = 5 * time.Minute

// listen opens all ports before the first answer, so that a backend that answers on one port answers on all.
func (s *server) listen(ctx context.Context) (*listeners, error) {
	config := net.ListenConfig{KeepAlive: KeepAlive}
	l := &listeners{}
	var err error
	if l.http, err = config.Listen(ctx, "tcp", address(s.options.HTTPPort)); err != nil {
		return nil, fmt.Errorf("opening the port for HTTP: %w", err)
	}
	if s.options.UDPPort != Off {
		if l.udp, err = config.ListenPacket(ctx, "udp", address(s.options.UDPPort)); err != nil {
			l.close()
			return nil, fmt.Errorf("opening the port for UDP: %w", err)
		}
	}
	if s.options.TCPPort != Off {
		if l.tcp, err = config.Listen(ctx, "tcp", address(s.options.TCPPort)); err != nil {
			l.close()
			return nil, fmt.Errorf("opening the port for TCP: %w", err)
		}
	}
	return l, nil
}

func address(port int) string { return ":" + strconv.Itoa(port) }

// reply answers one raw request; false means no answer, as agnhost gives to unknown commands. As in agnhost, commands
// are case-insensitive and echo answers in lower case. The commands `identity` and `attempt N` (answer: N and the
// identity) are not in agnhost.
func (s *server) reply(request, client string, port int) (string, bool) {
	text := strings.TrimSpace(request)
	lower := strings.ToLower(text)
	word, rest, _ := strings.Cut(lower, " ")
	switch {
	case lower == "hostname":
		return s.id.Pod, true
	case lower == "identity":
		return s.line(client), true
	case lower == "clientip":
		return client, true
	case lower == "serverport":
		return strconv.Itoa(port), true
	case word == "attempt" && rest != "":
		return rest + " " + s.line(client), true
	case word == "echo" && rest != "":
		return rest, true
	case word == "envvar" && rest != "":
		_, name, _ := strings.Cut(text, " ")
		return os.Getenv(strings.TrimSpace(name)), true
	}
	return "", false
}

// serveTCP answers each line; a connection stays open until the client closes it.
func (s *server) serveTCP(listener net.Listener) error {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go s.serveConn(conn)
	}
}

func (s *server) serveConn(conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		answer, ok := s.reply(lines.Text(), conn.RemoteAddr().String(), s.options.TCPPort)
		if !ok {
			continue
		}
		if _, err := conn.Write([]byte(answer + "\n")); err != nil {
			return
		}
	}
}
