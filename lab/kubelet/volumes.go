package kubelet

import (
	"fmt"
	"os"
	"path"
	"slices"

	"maps"

	corev1 "k8s.io/api/core/v1"
)

// volumeFile is a file of a volume, with a relative path.
type volumeFile struct {
	name string
	data []byte
	mode os.FileMode
}

// podsDir has the volumes of pods on a node, as a kubelet's.
const podsDir = "/var/lib/kubelet/pods"

func (p *pod) volumeDir(name string) string {
	return path.Join(podsDir, string(p.object.UID), "volumes", name)
}

// addVolume makes a volume on the node.
func (c *collector) addVolume(v *corev1.Volume) error {
	if v.HostPath != nil {
		kind := corev1.HostPathUnset
		if v.HostPath.Type != nil {
			kind = *v.HostPath.Type
		}
		c.volumes[v.Name] = v.HostPath.Path
		return c.k.host.hostPath(v.HostPath.Path, kind)
	}
	files, err := c.volumeFiles(v)
	if err != nil {
		return err
	}
	c.volumes[v.Name], err = c.k.host.volume(c.volumeDir(v.Name), files)
	return err
}

// volumeFiles are the files with which a volume begins.
func (c *collector) volumeFiles(v *corev1.Volume) ([]volumeFile, error) {
	switch {
	case v.EmptyDir != nil:
		return nil, nil
	case v.ConfigMap != nil:
		s := v.ConfigMap
		return c.objectFiles("ConfigMap", s.Name, s.Items, s.Optional, mode(nil, s.DefaultMode))
	case v.Secret != nil:
		s := v.Secret
		return c.objectFiles("Secret", s.SecretName, s.Items, s.Optional, mode(nil, s.DefaultMode))
	case v.DownwardAPI != nil:
		return c.fieldFiles(v.DownwardAPI.Items, mode(nil, v.DownwardAPI.DefaultMode))
	case v.Projected != nil:
		return c.projected(v.Projected)
	}
	return nil, unsupported("volume %s of another kind than emptyDir, configMap, secret, downwardAPI, projected or hostPath", v.Name)
}

func (c *collector) projected(s *corev1.ProjectedVolumeSource) (files []volumeFile, err error) {
	common := mode(nil, s.DefaultMode)
	for i := range s.Sources {
		var more []volumeFile
		switch from := &s.Sources[i]; {
		case from.ConfigMap != nil:
			more, err = c.objectFiles("ConfigMap", from.ConfigMap.Name, from.ConfigMap.Items, from.ConfigMap.Optional, common)
		case from.Secret != nil:
			more, err = c.objectFiles("Secret", from.Secret.Name, from.Secret.Items, from.Secret.Optional, common)
		case from.DownwardAPI != nil:
			more, err = c.fieldFiles(from.DownwardAPI.Items, common)
		case from.ServiceAccountToken != nil:
			var token []byte
			token, err = c.token(from.ServiceAccountToken)
			more = []volumeFile{{from.ServiceAccountToken.Path, token, common}}
		default:
			err = unsupported("a projected volume of another source than configMap, secret, downwardAPI or serviceAccountToken")
		}
		if err != nil {
			return nil, err
		}
		files = append(files, more...)
	}
	return files, nil
}

// objectFiles are the files of a ConfigMap or Secret: all of its keys, or those of items.
func (c *collector) objectFiles(kind, name string, items []corev1.KeyToPath, optional *bool, common os.FileMode) (files []volumeFile, err error) {
	if err := c.read(kind, name, optional); err != nil {
		return nil, err
	}
	data := c.data[kind+"/"+name]
	if len(items) == 0 {
		for _, key := range slices.Sorted(maps.Keys(data)) {
			files = append(files, volumeFile{key, data[key], common})
		}
		return files, nil
	}
	for _, item := range items {
		text, set, err := c.key(kind, name, item.Key, optional)
		if err != nil {
			return nil, err
		}
		if set {
			files = append(files, volumeFile{item.Path, []byte(text), mode(item.Mode, &[]int32{int32(common)}[0])})
		}
	}
	return files, nil
}

func (c *collector) fieldFiles(items []corev1.DownwardAPIVolumeFile, common os.FileMode) (files []volumeFile, err error) {
	for _, item := range items {
		var text string
		if item.FieldRef != nil {
			text, err = c.field(item.FieldRef.FieldPath)
		} else {
			text, err = c.resource(item.ResourceFieldRef, item.ResourceFieldRef.ContainerName)
		}
		if err != nil {
			return nil, fmt.Errorf("writing the file %s of a downwardAPI volume: %w", item.Path, err)
		}
		files = append(files, volumeFile{item.Path, []byte(text), mode(item.Mode, &[]int32{int32(common)}[0])})
	}
	return files, nil
}

// mode is the first mode that is set; 0644 when none is.
func mode(all ...*int32) os.FileMode {
	for _, m := range all {
		if m != nil {
			return os.FileMode(*m).Perm()
		}
	}
	return 0o644
}
