package replaytest

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// review is the request of a review of access.
const review = "create selfsubjectaccessreviews.authorization.k8s.io"

// Withhold answers reviews of access like RBAC that lacks these verbs, in the form of Verb.
func Withhold(lacks ...string) func(next http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if Verb(r) != review {
				next.ServeHTTP(w, r)
				return
			}
			asked, err := readReview(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			of := asked.Spec.ResourceAttributes
			asked.Status.Allowed = !slices.Contains(lacks, text(of.Verb, of.Resource, of.Subresource, of.Group))
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			_ = json.NewEncoder(w).Encode(asked)
		})
	}
}

// readReview reads a review of access to a resource, as JSON or protobuf.
func readReview(r *http.Request) (*authorizationv1.SelfSubjectAccessReview, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	asked := &authorizationv1.SelfSubjectAccessReview{}
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, asked); err != nil {
		return nil, err
	}
	if asked.Spec.ResourceAttributes == nil {
		return nil, errors.New("the review is about no resource")
	}
	asked.SetGroupVersionKind(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"))
	return asked, nil
}

// Writes reports whether a request writes an object. A review of access does not.
func Writes(r *http.Request) bool { return r.Method != http.MethodGet && Verb(r) != review }

// Verb is the verb and the resource of a request, as in RBAC, such as "patch pods/status" or "list endpointslices.discovery.k8s.io". It is
// empty for what all users may ask, such as the server's version.
func Verb(r *http.Request) string {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	group := ""
	switch {
	case len(path) > 2 && path[0] == "api":
		path = path[2:]
	case len(path) > 3 && path[0] == "apis":
		group, path = path[1], path[3:]
	default:
		return ""
	}
	if len(path) > 2 && path[0] == "namespaces" {
		path = path[2:]
	}
	verb := map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete", http.MethodGet: "get"}[r.Method]
	switch {
	case verb == "get" && r.URL.Query().Get("watch") != "":
		verb = "watch"
	case verb == "get" && len(path) == 1:
		verb = "list"
	}
	part := ""
	if len(path) > 2 {
		part = path[2]
	}
	return text(verb, path[0], part, group)
}

func text(verb, resource, part, group string) string {
	all := verb + " " + resource
	if part != "" {
		all += "/" + part
	}
	if group != "" {
		all += "." + group
	}
	return all
}
