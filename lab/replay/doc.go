// Package replay is the thin replay control plane: an in-memory API server that speaks the real wire protocol over
// plain HTTP. It needs no build and no disk, starts in milliseconds, costs nothing while nothing changes, and can do
// what no real API server does on demand: delay one client's watches, cut them,
// lose one of their events, or answer 410.
//
// What is as in the real one: discovery of the known resources, get, list, watch (bookmarks, initial events, 410, too
// large resource versions, changes of selection), create, update, patch, delete (graceful for pods, finalizers), the
// status subresource, label and field selectors, optimistic locking, JSON and protobuf as the client asks, and GET of
// pods/proxy, for pods that something else runs.
//
// TestAnswersAreThoseOfTheRealAPIServer (make netns) sends the same requests to a real one and compares.
//
// What is simpler, on purpose: one API server without authentication, admission or quota; namespaces need not exist;
// nothing is allocated (a Service without clusterIP has none); no paging (limit is ignored); the defaults of defaults.go
// only; server-side apply merges and never removes fields; subresources other than status, eviction and proxy are unknown; nobody acts on
// Deployments, ReplicaSets or anything else. It is not a test of controllers, and not for production.
package replay
