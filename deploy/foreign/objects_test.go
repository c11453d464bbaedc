package foreign

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// objects has the objects of a manifest by kind and name.
type objects map[string]runtime.Object

// parse decodes documents as strictly as an API server can: unknown and duplicate fields are errors.
func parse(t *testing.T, text string) objects {
	t.Helper()
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	all := objects{}
	for document := range strings.SplitSeq("\n"+text, "\n---") {
		if strings.TrimSpace(document) == "" || onlyComments(document) {
			continue
		}
		object, kind, err := decoder.Decode([]byte(document), nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		meta := object.(interface{ GetName() string })
		name := kind.Kind + "/" + meta.GetName()
		if all[name] != nil {
			t.Errorf("the manifest has %s twice", name)
		}
		all[name] = object
	}
	return all
}

func onlyComments(text string) bool {
	return !slices.ContainsFunc(strings.Split(text, "\n"), func(line string) bool {
		line = strings.TrimSpace(line)
		return line != "" && !strings.HasPrefix(line, "#")
	})
}

// kustomized returns the objects that `kubectl apply -k` of the folder sends.
func kustomized(t *testing.T, dir string) objects {
	t.Helper()
	dir, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := resources.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(text))
}

// rendered returns the objects that `helm install NAME --namespace hitless` sends with the values, and the notes.
func rendered(t *testing.T, name, values string) (all objects, notes string) {
	t.Helper()
	files, err := render(name, values)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for file, text := range files {
		if strings.HasSuffix(file, "NOTES.txt") {
			notes = text
			continue
		}
		fmt.Fprintf(&b, "\n---\n%s", text)
	}
	return parse(t, b.String()), notes
}

// render validates the values by the chart's schema, and renders all files of the chart by name.
func render(name, values string) (map[string]string, error) {
	chart, err := loader.Load("../charts/hitless")
	if err != nil {
		return nil, err
	}
	if err := chart.Validate(); err != nil {
		return nil, err
	}
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return nil, err
	}
	release := chartutil.ReleaseOptions{Name: name, Namespace: "hitless", Revision: 1, IsInstall: true}
	in, err := chartutil.ToRenderValues(chart, given, release, nil)
	if err != nil {
		return nil, err
	}
	return engine.Engine{Strict: true}.Render(chart, in)
}
