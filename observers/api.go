package observers

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/hitless/hitless/record"
)

// apiWatch records events of a namespace (empty for all namespaces) until ctx ends. It returns an error only when the watch
// cannot be set up.
type apiWatch func(ctx context.Context, client kubernetes.Interface, namespace string, recorder record.Recorder, now func() time.Duration) error

// apiWatches are the watches of the lab and of live clusters. Their resources need `list` and `watch` in cluster.Needs.
var apiWatches = []apiWatch{WatchEndpoints}

// WatchAPI records the changes in the API that the lab and live clusters share, in a namespace (empty for all namespaces), until
// ctx ends. It returns an error only when a watch cannot be set up.
func WatchAPI(ctx context.Context, client kubernetes.Interface, namespace string, recorder record.Recorder, now func() time.Duration) error {
	all, ctx := errgroup.WithContext(ctx)
	for _, watch := range apiWatches {
		all.Go(func() error { return watch(ctx, client, namespace, recorder, now) })
	}
	return all.Wait()
}

// changesOf returns a watch that records the events between each two versions of the informer's objects; nil stands for an
// object that does not exist.
func changesOf[T any](what string, informer func(informers.SharedInformerFactory) cache.SharedIndexInformer, events func(before, after *T) []record.Event) apiWatch {
	return func(ctx context.Context, client kubernetes.Interface, namespace string, recorder record.Recorder, now func() time.Duration) error {
		factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
		err := watch(ctx, factory, informer(factory), func(before, after *T) {
			for _, e := range events(before, after) {
				e.At = now()
				recorder.Event(e)
			}
		})
		if err != nil {
			return fmt.Errorf("watching %s: %w", what, err)
		}
		return nil
	}
}
