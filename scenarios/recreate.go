package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/scenarios/timeline"
)

// recreate deletes the measured Service and creates it again with the same addresses and ports, as deployment tools do.
// A proxy whose deletion comes late removes the new Service too (kubernetes#71071 is of this kind).
func recreate() Scenario {
	return Scenario{
		Name:    "recreate",
		Summary: "deletes the Service and creates it again with the same addresses while traffic flows",
		Parameters: []Parameter{
			laneParameters(),
			noService.Parameter,
			Replicas.withDefault("3"),
			clusterPolicy,
		},
		Steps: always([]string{"object delete", "object apply", "expect balanced"}),
		Setup: func(p Params) Setup { return Setup{Lasts: noService.Of(p) + p.memberTime()} },
		Run: func(ctx context.Context, w *World) error {
			var s corev1.Service
			if err := w.Cluster.Get(ctx, w.run.main.name, w.namespace(), &s); err != nil {
				return fmt.Errorf("reading the Service: %w", err)
			}
			if err := w.Step(ctx, "delete the Service", "", w.deleteService); err != nil {
				return err
			}
			if err := w.Clock.Sleep(ctx, noService.Of(w.Params)); err != nil {
				return err
			}
			return w.Step(ctx, "create it again", "", func(ctx context.Context) error { return w.createAgain(ctx, &s) })
		},
	}
}

// deleteService deletes the Service and waits until it is gone.
func (w *World) deleteService(ctx context.Context) error {
	if err := w.performVerb(ctx, "object delete", w.serviceName()); err != nil {
		return err
	}
	return w.Until(ctx, "the Service to be gone", time.Minute, func(ctx context.Context) (bool, string, error) {
		var s corev1.Service
		err := w.Cluster.Get(ctx, w.run.main.name, w.namespace(), &s)
		if apierrors.IsNotFound(err) {
			return true, "", nil
		}
		return false, "it is still there", err
	})
}

// createAgain creates the Service and waits until it has its old addresses and the load balancer has its nodes.
func (w *World) createAgain(ctx context.Context, was *corev1.Service) error {
	s := &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: was.Name, Namespace: was.Namespace, Labels: was.Labels, Annotations: was.Annotations}, Spec: was.Spec}
	s.Spec.LoadBalancerIP = strings.Join(IngressIPs(was), ",")
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := w.perform(ctx, timeline.Step{Verb: "object apply", JSON: string(data)}); err != nil {
		return err
	}
	err = w.Until(ctx, "the Service to have the addresses and ports that it had", time.Minute, func(ctx context.Context) (bool, string, error) {
		var now corev1.Service
		err := w.Cluster.Get(ctx, was.Name, was.Namespace, &now)
		same := now.Spec.ClusterIP == was.Spec.ClusterIP && reflect.DeepEqual(now.Spec.Ports, was.Spec.Ports) &&
			reflect.DeepEqual(now.Status.LoadBalancer, was.Status.LoadBalancer)
		return same, fmt.Sprintf("%s, %v and %v", now.Spec.ClusterIP, now.Spec.Ports, now.Status.LoadBalancer.Ingress), err
	})
	if err != nil {
		return err
	}
	return w.awaitBalanced(ctx)
}

// serviceName is the reference of the measured Service in a timeline.
func (w *World) serviceName() string { return "Service/" + w.namespace() + "/" + w.run.main.name }
