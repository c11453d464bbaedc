package kube

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strconv"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/hitless/hitless/lab/topology"
)

// mastersGroup may do everything, whatever the authorizer says
// (https://kubernetes.io/docs/reference/access-authn-authz/rbac/#user-facing-roles).
const mastersGroup = "system:masters"

// certify makes the certificates and the administrator's kubeconfig.
func (c *ControlPlane) certify(context.Context) error {
	if err := os.MkdirAll(c.config.Dir, 0o755); err != nil {
		return fmt.Errorf("making the folder of the control plane: %w", err)
	}
	var err error
	if c.authority, err = newAuthority(c.config.Now); err != nil {
		return err
	}
	if err := os.WriteFile(c.file("ca.crt"), c.authority.pem, 0o644); err != nil {
		return fmt.Errorf("writing the certificate authority: %w", err)
	}
	serving := []netip.Addr{topology.ControlAddr, netip.MustParseAddr("127.0.0.1"), topology.ServiceCIDR.Addr().Next()}
	server, err := c.authority.server("kube-apiserver", serving, "localhost", "kubernetes", "kubernetes.default",
		"kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
	if err != nil {
		return err
	}
	if err := server.write(c.config.Dir, "serving"); err != nil {
		return err
	}
	if c.config.Workloads {
		if err := c.certifyKubelets(); err != nil {
			return err
		}
	}
	if err := writeSigningKey(c.file("tokens.key")); err != nil {
		return err
	}
	c.Kubeconfig, err = c.KubeconfigFor("admin")
	return err
}

// certifyKubelets makes the certificate that all kubelets serve with, and the one with which the API server calls them.
func (c *ControlPlane) certifyKubelets() error {
	var addrs []netip.Addr
	for _, n := range c.config.Nodes {
		addrs = append(addrs, n.Addrs...)
	}
	serving, err := c.authority.server("kubelet", addrs)
	if err != nil {
		return err
	}
	client, err := c.authority.client("kube-apiserver-kubelet-client", mastersGroup)
	if err != nil {
		return err
	}
	return errors.Join(serving.write(c.config.Dir, "kubelet"), client.write(c.config.Dir, "kubelet-client"))
}

// KubeletFiles are the files with which kubelets serve the API server, with Config.Workloads: their certificate and its key, and the
// authority of the API server's certificate.
func (c *ControlPlane) KubeletFiles() (cert, key, clientCA string) {
	return c.file("kubelet.crt"), c.file("kubelet.key"), c.file("ca.crt")
}

// writeSigningKey makes the key that service account tokens are signed with.
func writeSigningKey(path string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("making the key for service account tokens: %w", err)
	}
	text, err := encodeKey(key)
	if err != nil {
		return fmt.Errorf("writing the key for service account tokens: %w", err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("writing the key for service account tokens: %w", err)
	}
	return nil
}

// userFile maps a user to the name of its kubeconfig: users contain colons.
var userFile = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// KubeconfigFor writes a kubeconfig with a client certificate for a user and returns its path. Every user is in
// system:masters, because the lab does not test permissions. The API server's logs show the user's name.
func (c *ControlPlane) KubeconfigFor(user string) (string, error) {
	if user == "" {
		return "", fmt.Errorf("writing a kubeconfig: the user name is empty")
	}
	own, err := c.authority.client(user, mastersGroup)
	if err != nil {
		return "", err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["lab"] = &clientcmdapi.Cluster{
		Server:                   "https://" + netip.AddrPortFrom(topology.ControlAddr, apiPort).String(),
		CertificateAuthorityData: c.authority.pem,
	}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: own.cert, ClientKeyData: own.key}
	config.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: user}
	config.CurrentContext = "lab"
	path := c.file(userFile.ReplaceAllString(user, "-") + ".kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return "", fmt.Errorf("writing the kubeconfig of %s: %w", user, err)
	}
	return path, nil
}

// NewClient returns a client for a kubeconfig file. An empty content type means client-go's default, JSON.
func NewClient(kubeconfig, contentType string) (kubernetes.Interface, error) {
	config, err := restConfig(kubeconfig, contentType)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", kubeconfig, err)
	}
	return client, nil
}

func restConfig(kubeconfig, contentType string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig %s: %w", kubeconfig, err)
	}
	config.ContentType = contentType
	config.QPS = -1 // no throttle: client-go's default of 5 requests a second would be measured as the cluster's delay
	return config, nil
}

func port(number uint16) string { return strconv.Itoa(int(number)) }
