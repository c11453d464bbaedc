// Command exec-nftables is the worked example of docs/subjects.md: a minimal proxy with the standard library and nft. It lists Services
// and EndpointSlices periodically, and writes changed rules in one nft transaction.
//
// Its settings are an object of the API, ProxySettings of example.com. The head of its rules is a file of the node, and the rules
// that it has written are in another one, so that a restart does not write the same rules again.
//
// It is deliberately simple: IPv4, no externalTrafficPolicy Local, no NodePorts, no session affinity, and an API server
// without credentials.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

const (
	installed = "/var/lib/exec-nftables" // folder with head.nft
	saved     = "/run/exec-nftables"     // folder for written.nft; it is lost with the node's power, as the rules are
)

func main() {
	server := flag.String("server", "", "URL of the API server, without credentials")
	cleanup := flag.Bool("cleanup", false, "remove the rules and exit")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	var err error
	if *cleanup {
		err = errors.Join(nft(ctx, removal), os.RemoveAll(filepath.Join(saved, "written.nft")))
	} else if os.Getenv("DEAD_AFTER_RESTART") != "" && nft(ctx, "list table ip exec-nftables") == nil {
		go serveHealth() // the fault of a red twin: healthy, and no rule is written any more
		<-ctx.Done()
	} else {
		err = run(ctx, *server, os.Getenv("KEEP_REMOVED_ENDPOINTS") != "")
	}
	if err != nil {
		log.Fatal(err)
	}
}

// run updates the rules until ctx ends. The rules stay, so that connections survive the end of the proxy.
func run(ctx context.Context, server string, keep bool) error {
	head, err := os.ReadFile(filepath.Join(installed, "head.nft"))
	if err != nil {
		return err
	}
	var settings settings // the time between two lists; backends serve longer than that after SIGTERM
	if err := get(ctx, server+"/apis/example.com/v1/proxysettings/default", &settings); err != nil {
		return err
	}
	log.Printf("polling every %d ms", settings.Spec.PollMilliseconds)
	written, err := os.ReadFile(filepath.Join(saved, "written.nft"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	log.Printf("the last process has left %d bytes of rules", len(written))
	proxy := proxy{head: string(head), keep: keep, kept: map[string][]string{}}
	ticker := time.NewTicker(time.Duration(settings.Spec.PollMilliseconds) * time.Millisecond)
	defer ticker.Stop()
	for healthy := false; ; {
		rules, err := proxy.wanted(ctx, server)
		if err == nil && rules != string(written) {
			err = errors.Join(nft(ctx, rules), os.WriteFile(filepath.Join(saved, "written.nft"), []byte(rules), 0o600))
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			log.Print(err) // the old rules stay until the next try
		default:
			written = []byte(rules)
			if !healthy {
				go serveHealth()
				healthy = true
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (p *proxy) wanted(ctx context.Context, server string) (string, error) {
	var services serviceList
	var slices sliceList
	if err := errors.Join(get(ctx, server+"/api/v1/services", &services),
		get(ctx, server+"/apis/discovery.k8s.io/v1/endpointslices", &slices)); err != nil {
		return "", err
	}
	return p.ruleset(services.Items, slices.Items), nil
}

func get(ctx context.Context, url string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// nft applies a ruleset in one transaction.
func nft(ctx context.Context, ruleset string) error {
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin = bytes.NewBufferString(ruleset)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, out)
	}
	return nil
}

// serveHealth answers the health checks of load balancers (externalTrafficPolicy Cluster). It starts with the first rules.
func serveHealth() {
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	log.Fatal(http.ListenAndServe(":10256", ok))
}
