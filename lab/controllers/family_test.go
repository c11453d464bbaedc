package controllers

import (
	"context"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/record"
)

// A Service gets a cluster IP and an EndpointSlice of each of its families, and of the cluster's primary one when it names none.
func TestFamiliesOfServices(t *testing.T) {
	both := corev1.IPFamilyPolicyRequireDualStack
	for name, c := range map[string]struct {
		cluster record.Family
		spec    corev1.ServiceSpec
		want    []record.Family
	}{
		"IPv4":             {record.IPv4, corev1.ServiceSpec{}, []record.Family{record.IPv4}},
		"IPv6":             {record.IPv6, corev1.ServiceSpec{}, []record.Family{record.IPv6}},
		"dual, unnamed":    {record.DualStack, corev1.ServiceSpec{}, []record.Family{record.IPv4}},
		"dual, both named": {record.DualStack, corev1.ServiceSpec{IPFamilyPolicy: &both, IPFamilies: []corev1.IPFamily{"IPv4", "IPv6"}}, []record.Family{record.IPv4, record.IPv6}},
	} {
		t.Run(name, func(t *testing.T) {
			client := api(t)
			ctx, cancel := context.WithCancel(ctx)
			done := make(chan error)
			go func() { done <- Run(ctx, client, c.cluster, []string{"node-1"}) }()
			defer func() { cancel(); <-done }()
			labels := map[string]string{"app": "web"}
			c.spec.Selector, c.spec.Ports = labels, []corev1.ServicePort{{Port: 80}}
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1", Namespace: "default", Labels: labels}}
			if _, err := client.CoreV1().Pods("default").Create(ctx, &pod, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
			ips := map[record.Family]string{record.IPv4: "10.244.1.2", record.IPv6: "fd00:244:0:1::2"}
			for _, f := range c.cluster.Each() {
				pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: ips[f]})
			}
			pod.Status.PodIP = pod.Status.PodIPs[0].IP
			if _, err := client.CoreV1().Pods("default").UpdateStatus(ctx, &pod, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}, Spec: c.spec}
			if _, err := client.CoreV1().Services("default").Create(ctx, s, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			for _, f := range c.want {
				waitFor(t, "the slice of "+string(f), func() bool {
					slice, err := client.DiscoveryV1().EndpointSlices("default").Get(ctx, f.Named("web-1"), metav1.GetOptions{})
					return err == nil && (slice.AddressType == discoveryv1.AddressTypeIPv6) == (f == record.IPv6) &&
						len(slice.Endpoints) == 1 && slice.Endpoints[0].Addresses[0] == ips[f]
				})
			}
			slices, err := client.DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{})
			if err != nil || len(slices.Items) != len(c.want) {
				t.Errorf("%d slices, %v", len(slices.Items), err)
			}
			waitFor(t, "the Endpoints", func() bool { return addresses(client, "web") == ips[c.want[0]]+" / " })
			got, err := client.CoreV1().Services("default").Get(ctx, "web", metav1.GetOptions{})
			if err != nil || len(got.Spec.ClusterIPs) != len(c.want) {
				t.Fatalf("the cluster IPs are %v, %v", got.Spec.ClusterIPs, err)
			}
			for i, f := range c.want {
				if a, err := netip.ParseAddr(got.Spec.ClusterIPs[i]); err != nil || record.FamilyOf(a) != f {
					t.Errorf("cluster IP %d is %s", i, got.Spec.ClusterIPs[i])
				}
			}
		})
	}
}
