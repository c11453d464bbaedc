// Package record makes a timeline of what a cluster's API tells: its Services, EndpointSlices, Nodes and Pods, and what
// becomes of them, so that the same hours can be done to any proxy in the lab.
//
// It keeps what proxies act upon and nothing else. What it keeps is named field by field (keep.go), so that no annotation,
// environment, command, image or secret gets into a recording, whatever a later version of Kubernetes adds.
package record
