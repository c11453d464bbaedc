package cluster

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/hitless/hitless/internal/input"
)

// readKubeconfig reads a kubeconfig for one of its contexts. The files that it names, such as keys, are regular and bounded too.
func readKubeconfig(file, contextName string) (*rest.Config, error) {
	text, err := input.Read(context.Background(), file, input.TextBytes)
	if err != nil {
		return nil, err
	}
	if _, err := input.Document(file, text); err != nil {
		return nil, err
	}
	all, err := clientcmd.Load(text)
	if err != nil {
		return nil, err
	}
	for _, c := range all.Clusters {
		c.LocationOfOrigin = file
	}
	for _, u := range all.AuthInfos {
		u.LocationOfOrigin = file
	}
	if err := clientcmd.ResolveLocalPaths(all); err != nil {
		return nil, err
	}
	if err := checkFiles(all, contextName); err != nil {
		return nil, err
	}
	return clientcmd.NewDefaultClientConfig(*all, &clientcmd.ConfigOverrides{CurrentContext: contextName}).ClientConfig()
}

// checkFiles checks the files of a context before client-go opens them, which would wait for a named pipe.
func checkFiles(all *clientcmdapi.Config, contextName string) error {
	var files []string
	if c := all.Contexts[cmp.Or(contextName, all.CurrentContext)]; c != nil {
		if u := all.AuthInfos[c.AuthInfo]; u != nil {
			files = append(files, u.ClientCertificate, u.ClientKey, u.TokenFile)
		}
		if cluster := all.Clusters[c.Cluster]; cluster != nil {
			files = append(files, cluster.CertificateAuthority)
		}
	}
	for _, name := range files {
		if name == "" {
			continue
		}
		if err := input.Check(name, input.TextBytes); err != nil {
			return fmt.Errorf("a file that it names: %w", err)
		}
	}
	return nil
}
