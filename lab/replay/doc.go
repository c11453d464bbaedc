// Package replay is the replay control plane: an in-memory API server that speaks the Kubernetes wire protocol over
// plain HTTP. It needs no build and no disk, starts in milliseconds and causes no wake-ups while nothing changes. On
// demand it injects faults: it delays, cuts or expires a client's watches or loses one of their events.
//
// As in the real server: discovery of the known resources, get, list, watch (bookmarks, initial events, 410, resource
// versions from the future, objects that enter or leave a selector), create, update, patch, delete (graceful for pods,
// finalizers), the status subresource, label and field selectors, optimistic locking, JSON and protobuf, GET of
// pods/proxy, and custom resources in JSON from the creation of their CustomResourceDefinition on.
//
// TestResponsesMatchTheRealAPIServer (make netns) sends the same requests to a real server and compares the responses.
//
// Simpler than the real server: no authentication, admission or quota; namespaces need not exist; nothing is allocated
// (a Service without clusterIP has none); no paging (limit is ignored); only the defaults of defaults.go; server-side
// apply merges and never removes fields; no subresources other than status, eviction and proxy; no controllers; custom resources
// are neither validated, pruned nor converted, and have no defaults. It is
// neither for tests of controllers nor for production.
package replay
