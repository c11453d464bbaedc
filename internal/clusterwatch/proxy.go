package clusterwatch

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/observers"
	"github.com/hitless/hitless/record"
)

// proxies are the pods of the proxy's DaemonSet.
type proxies struct {
	c         *causes
	namespace string
	selector  string

	mu     sync.Mutex
	failed time.Time            // of the last failed attempt; zero after it was looked into
	asked  map[string]bool      // UIDs of the pods that were asked for their mode
	told   map[string]bool      // what was refused or failed, told once
	logged map[string]time.Time // by pod: the last line that is recorded
}

// Limits of what is read of proxies after failures.
const (
	proxyPause    = 10 * time.Second
	mostProxies   = 50 // pods that are asked each time
	mostLines     = 20 // of one pod's log each time
	logBytes      = 256 << 10
	proxyPort     = 10249 // of kube-proxy's /proxyMode and /metrics (--metrics-bind-address)
	proxyPatience = 3 * time.Second
)

// startProxy observes the proxy's DaemonSet, if there is one and the permissions suffice.
func startProxy(c *causes) {
	w := c.w
	namespace, name, _ := strings.Cut(w.o.Proxy, "/")
	if !w.can("get", "daemonsets", "") {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, w.o.Within)
	defer cancel()
	set, err := w.cluster.Client.AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		w.remark("warning", fmt.Sprintf("the proxy's DaemonSet %s is not observed: %v; name it with --proxy NAMESPACE/NAME", w.o.Proxy, err))
		return
	}
	p := &proxies{c: c, namespace: namespace, selector: metav1.FormatLabelSelector(set.Spec.Selector), asked: map[string]bool{},
		told: map[string]bool{}, logged: map[string]time.Time{}}
	w.exporter.onFailure(p.noteFailure)
	c.run(func() error {
		return observers.WatchProxyPods(c.ctx, w.cluster.Client, namespace, p.selector, "proxy", w.record, w.now)
	})
	c.all.Go(p.loop)
}

// noteFailure asks the proxies soon.
func (p *proxies) noteFailure() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = time.Now()
}

// loop asks the proxies for their mode, and after failures for their logs and metrics.
func (p *proxies) loop() {
	tick := time.NewTicker(proxyPause)
	defer tick.Stop()
	for p.look(); ; p.look() {
		select {
		case <-tick.C:
		case <-p.c.ctx.Done():
			return
		}
	}
}

func (p *proxies) look() {
	ctx, cancel := context.WithTimeout(p.c.ctx, proxyPause)
	defer cancel()
	list, err := p.c.w.cluster.Client.CoreV1().Pods(p.namespace).List(ctx, metav1.ListOptions{LabelSelector: p.selector})
	if err != nil {
		return // a silence of the API is recorded elsewhere
	}
	p.mu.Lock()
	failed := p.failed
	p.failed = time.Time{}
	p.mu.Unlock()
	for i := range list.Items[:min(len(list.Items), mostProxies)] {
		pod := &list.Items[i]
		p.askMode(ctx, pod)
		if !failed.IsZero() {
			p.readLog(ctx, pod, failed)
			p.readMetrics(ctx, pod)
		}
	}
}

// once records a remark the first time.
func (p *proxies) once(about, text string) {
	if !p.told[about] {
		p.told[about] = true
		p.c.w.remark("warning", text)
	}
}

// get fetches a path of kube-proxy's own server through the API server.
func (p *proxies) get(ctx context.Context, pod *corev1.Pod, path string) ([]byte, bool) {
	if !p.c.w.can("get", "pods", "proxy") || ctx.Err() != nil {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, proxyPatience)
	defer cancel()
	data, err := p.c.w.cluster.CallWorker(ctx, p.namespace, pod.Name, proxyPort, path, nil)
	if err != nil && p.c.ctx.Err() == nil {
		p.once("get "+path, fmt.Sprintf("%s of the proxies is not read: %v; kube-proxy serves it on 127.0.0.1 alone unless its metricsBindAddress says otherwise", path, err))
	}
	return data, err == nil
}

// askMode records the mode of a new proxy.
func (p *proxies) askMode(ctx context.Context, pod *corev1.Pod) {
	if p.asked[string(pod.UID)] || !observers.PodReady(pod) {
		return
	}
	p.asked[string(pod.UID)] = true
	data, ok := p.get(ctx, pod, "proxyMode")
	mode := strings.TrimSpace(string(data))
	if ok && mode != "" && len(mode) < 32 {
		p.c.w.record.Event(record.Event{At: p.c.w.now(), Node: pod.Spec.NodeName, Object: "proxy", Body: record.Log{Program: "hitless", Level: "info"},
			Text: fmt.Sprintf("the proxy on %s (pod %s) runs in mode %s", pod.Spec.NodeName, pod.Name, mode)})
	}
}

// readLog records the lines of a proxy's log near a failure.
func (p *proxies) readLog(ctx context.Context, pod *corev1.Pod, failed time.Time) {
	if !p.c.w.can("get", "pods", "log") || ctx.Err() != nil {
		return
	}
	since := metav1.NewTime(failed.Add(-2 * proxyPause))
	if last := p.logged[pod.Name]; last.After(since.Time) {
		since = metav1.NewTime(last)
	}
	limit := int64(logBytes)
	data, err := p.c.w.cluster.Client.CoreV1().Pods(p.namespace).GetLogs(pod.Name, &corev1.PodLogOptions{SinceTime: &since, Timestamps: true, LimitBytes: &limit}).DoRaw(ctx)
	if err != nil {
		p.once("log", "the logs of the proxies are not read: "+err.Error())
		return
	}
	lines := 0
	for line := range bytes.Lines(data) { // of any length
		if lines == mostLines {
			break
		}
		stamp, text, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), " ")
		at, err := time.Parse(time.RFC3339Nano, stamp)
		if err != nil || !at.After(p.logged[pod.Name]) {
			continue
		}
		p.logged[pod.Name] = at
		lines++
		p.c.w.record.Event(record.Event{At: max(0, p.c.w.now()-time.Since(at)), Node: pod.Spec.NodeName, Object: "proxy",
			Text: fmt.Sprintf("the proxy of %s: %s", pod.Spec.NodeName, strings.ToValidUTF8(text[:min(len(text), 500)], "")), Body: record.Log{Program: "proxy", Level: level(text)}})
	}
}

// level is that of a line by klog.
func level(text string) string {
	switch {
	case strings.HasPrefix(text, "W"):
		return "warning"
	case strings.HasPrefix(text, "E"), strings.HasPrefix(text, "F"):
		return "error"
	}
	return "info"
}

var syncTime = regexp.MustCompile(`(?m)^kubeproxy_sync_proxy_rules_last_(queued_)?timestamp_seconds(?:\{[^}]*\})? (\S+)$`)

// readMetrics records that a proxy has changes which it has not written.
func (p *proxies) readMetrics(ctx context.Context, pod *corev1.Pod) {
	data, ok := p.get(ctx, pod, "metrics")
	if !ok {
		return
	}
	var queued, synced float64
	for _, m := range syncTime.FindAllSubmatch(data, -1) {
		value, _ := strconv.ParseFloat(string(m[2]), 64) // 0 is unknown
		if len(m[1]) > 0 {
			queued = max(queued, value)
		} else {
			synced = max(synced, value)
		}
	}
	if synced > 0 && queued > synced {
		p.c.w.record.Event(record.Event{At: p.c.w.now(), Node: pod.Spec.NodeName, Object: "proxy", Body: record.Log{Program: "proxy", Level: "warning"},
			Text: fmt.Sprintf("the proxy of %s has changes that it has not written for %.1f s, by its metrics", pod.Spec.NodeName, queued-synced)})
	}
}
