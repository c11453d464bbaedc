package observers

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/hitless/hitless/record"
)

// longestMessage is the longest part of an event's message that is recorded, in bytes.
const longestMessage = 300

// WatchEvents records the Kubernetes events of a namespace (empty for all) that are about certain objects, and were sent after it has
// started, until ctx ends. They are lines of a log: they explain nothing by themselves. It returns an error only when the watch cannot be
// set up.
func WatchEvents(ctx context.Context, client kubernetes.Interface, namespace string, about func(corev1.ObjectReference) bool, recorder record.Recorder, now func() time.Duration) error {
	begin := time.Now().Add(-time.Second) // times of events have a resolution of seconds
	informer := func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
		return f.Core().V1().Events().Informer()
	}
	return changesOf("events", informer, func(before, after *corev1.Event) []record.Event {
		if after == nil || sentAt(after).Before(begin) || !about(after.InvolvedObject) || before != nil && before.Count == after.Count {
			return nil
		}
		return []record.Event{eventLine(after)}
	})(ctx, client, namespace, recorder, now)
}

func sentAt(e *corev1.Event) time.Time {
	switch {
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}

func eventLine(e *corev1.Event) record.Event {
	level, node := "info", ""
	if e.Type == corev1.EventTypeWarning {
		level = "warning"
	}
	if e.InvolvedObject.Kind == "Node" {
		node = e.InvolvedObject.Name
	}
	message := strings.ToValidUTF8(e.Message[:min(len(e.Message), longestMessage)], "")
	return record.Event{Node: node, Object: e.InvolvedObject.Name, Body: record.Log{Program: "kubernetes", Level: level},
		Text: fmt.Sprintf("%s %s: %s: %s", strings.ToLower(e.InvolvedObject.Kind), e.InvolvedObject.Name, e.Reason, strings.Join(strings.Fields(message), " "))}
}
