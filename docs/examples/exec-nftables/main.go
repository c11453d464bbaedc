// Command exec-nftables is the worked example of docs/subjects.md: a minimal proxy with the standard library and nft. It lists Services
// and EndpointSlices four times per second, and writes changed rules in one nft transaction.
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
	"log"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// pollEvery is the time between two lists. Backends serve longer than that after SIGTERM.
const pollEvery = 250 * time.Millisecond

func main() {
	server := flag.String("server", "", "URL of the API server, without credentials")
	cleanup := flag.Bool("cleanup", false, "remove the rules and exit")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	var err error
	if *cleanup {
		err = nft(ctx, removal)
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
	var written string
	proxy := proxy{keep: keep, kept: map[string][]string{}}
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		rules, err := proxy.wanted(ctx, server)
		if err == nil && rules != written {
			err = nft(ctx, rules)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			log.Print(err) // the old rules stay until the next try
		case written == "":
			go serveHealth()
			fallthrough
		default:
			written = rules
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
