package cluster

import (
	"errors"
	"fmt"
	"net"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Explain adds to an error of the API what to do about it, where that is known.
func Explain(err error) error {
	if err == nil {
		return nil
	}
	hint := ""
	switch {
	case apierrors.IsUnauthorized(err):
		hint = "the cluster does not know who asks: the kubeconfig's token or certificate has expired or was revoked; log in again"
	case strings.Contains(err.Error(), "exceeded quota"): // also in the words of a Deployment that gets no pod
		hint = "a quota of the cluster is too small: raise it, or run with fewer --set replicas"
	case apierrors.IsForbidden(err):
		hint = "the kubeconfig's user may not do that; `hitless run ... --dry-run` lists what a run needs"
	case apierrors.IsTooManyRequests(err):
		hint = "the API server is overloaded and asks to come back later"
	case errors.As(err, new(net.Error)):
		hint = "the API server did not answer; see whether this machine still reaches it"
	}
	if hint == "" || strings.Contains(err.Error(), hint) {
		return err
	}
	return fmt.Errorf("%w; %s", err, hint)
}
