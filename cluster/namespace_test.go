package cluster

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
)

// An error of a request that may have made the namespace names it and the command that deletes it. One that was refused names neither.
func TestNamespaceThatMayExistIsNamed(t *testing.T) {
	namespaces := schema.GroupResource{Resource: "namespaces"}
	for name, c := range map[string]struct {
		err   error
		named bool
	}{
		"no answer":         {&url.Error{Op: "Post", URL: "https://192.0.2.1", Err: errNoAnswer}, true},
		"a reset":           {&url.Error{Op: "Post", URL: "https://192.0.2.1", Err: &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}}, true},
		"an interrupt":      {context.Canceled, true},
		"a server's limit":  {apierrors.NewTimeoutError("the server was slow", 1), true},
		"a server's defect": {apierrors.NewInternalError(errors.New("etcdserver: request timed out")), true},
		"an earlier try":    {apierrors.NewAlreadyExists(namespaces, "hitless-rollout-x"), true},
		"refused":           {&url.Error{Op: "Post", URL: "https://192.0.2.1", Err: &net.OpError{Op: "dial", Err: errors.New("connection refused")}}, false},
		"forbidden":         {apierrors.NewForbidden(namespaces, "", errors.New("exceeded quota: team")), false},
		"expired":           {apierrors.NewUnauthorized("token expired"), false},
	} {
		client, asked := fake.NewClientset(), ""
		client.PrependReactor("create", "namespaces", func(a kubetesting.Action) (bool, runtime.Object, error) {
			asked = a.(kubetesting.CreateAction).GetObject().(*corev1.Namespace).Name
			return true, nil, c.err
		})
		_, err := (&Cluster{Client: client}).MakeNamespace(t.Context(), "rollout", false)
		if !errors.Is(err, c.err) || !strings.HasPrefix(asked, "hitless-rollout-") {
			t.Fatalf("%s: %q was asked for: %v", name, asked, err)
		}
		if strings.Contains(err.Error(), asked) != c.named || strings.Contains(err.Error(), "hitless clean") != c.named {
			t.Errorf("%s: %v", name, err)
		}
	}
}
