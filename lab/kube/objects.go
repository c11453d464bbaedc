package kube

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/e2e-framework/klient/k8s/resources"

	"github.com/hitless/hitless/internal/input"
)

// establishedWithin bounds the time until the API serves the objects of a new CustomResourceDefinition.
const establishedWithin = 30 * time.Second

// Dial connects to the API server from another network namespace.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// CreateObjects creates the objects of manifests in their order. Before an object that is no definition, and at the end, it waits until
// the API serves the kinds that are defined so far. dial is nil where the server is in the caller's namespace.
func CreateObjects(ctx context.Context, kubeconfig string, dial Dial, files []string) error {
	if len(files) == 0 {
		return nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the lab's kubeconfig: %w", err)
	}
	config.QPS, config.Dial = -1, dial
	api, err := resources.New(config)
	if err != nil {
		return fmt.Errorf("reaching the lab's control plane: %w", err)
	}
	c := creator{api: api}
	for _, file := range files {
		if err := c.createFile(ctx, file); err != nil {
			return fmt.Errorf("creating the objects of %s: %w", filepath.Base(file), err)
		}
	}
	return c.awaitDefined(ctx)
}

// creator creates objects.
type creator struct {
	api     *resources.Resources
	defined []*unstructured.Unstructured // definitions that the API may not serve yet
}

func (c *creator) createFile(ctx context.Context, file string) error {
	f, err := input.Open(file, input.TextBytes)
	if err != nil {
		return err
	}
	defer f.Close()
	decoder := utilyaml.NewYAMLOrJSONDecoder(bufio.NewReader(f), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(object.Object) == 0 { // only comments
			continue
		}
		defines := object.GroupVersionKind().GroupKind() == definition
		if !defines {
			if err := c.awaitDefined(ctx); err != nil {
				return err
			}
		}
		if err := c.api.Create(ctx, object); err != nil {
			return fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
		}
		if defines {
			c.defined = append(c.defined, object)
		}
	}
}

func (c *creator) awaitDefined(ctx context.Context) error {
	for _, crd := range c.defined {
		if err := awaitEstablished(ctx, c.api, crd); err != nil {
			return fmt.Errorf("%s %s: %w", crd.GetKind(), crd.GetName(), err)
		}
	}
	c.defined = nil
	return nil
}

var definition = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}

// awaitEstablished waits for the condition Established of a definition.
func awaitEstablished(ctx context.Context, api *resources.Resources, crd *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeoutCause(ctx, establishedWithin, fmt.Errorf("the API does not serve it after %s", establishedWithin))
	defer cancel()
	for !established(crd) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond): // interval of the checks
		}
		if err := api.Get(ctx, crd.GetName(), "", crd); err != nil {
			return err
		}
	}
	return nil
}

func established(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions") // none until the API has seen it
	for _, c := range conditions {
		if c, is := c.(map[string]any); is && c["type"] == "Established" && c["status"] == "True" {
			return true
		}
	}
	return false
}
