package replay

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

const (
	jsonType     = "application/json"
	protobufType = runtime.ContentTypeProtobuf
	maxBody      = 3 << 20 // as the real server
)

// negotiate returns the first supported media type of an Accept header: JSON or protobuf, and JSON for any type. Tables
// and partial metadata (as=...) are not supported; clients that request them accept plain objects too. kube-proxy up to
// 1.16 decodes watches in the type that it requested first, whatever the response header says (client-go before 0.17).
func negotiate(accept string) (string, error) {
	if accept == "" {
		return jsonType, nil
	}
	for item := range strings.SplitSeq(accept, ",") {
		name, params, err := mime.ParseMediaType(item)
		if err != nil || params["as"] != "" {
			continue
		}
		switch name {
		case jsonType, "application/*", "*/*":
			return jsonType, nil
		case protobufType:
			return protobufType, nil
		}
	}
	return "", apierrors.NewGenericServerResponse(http.StatusNotAcceptable, "get", schema.GroupResource{}, "",
		fmt.Sprintf("only %s and %s are made, the client accepts %q", jsonType, protobufType, accept), 0, false)
}

// encode converts the JSON of an API object, list or Status to the media type.
func encode(media string, data []byte) ([]byte, error) {
	if media != protobufType {
		return data, nil
	}
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("reading an object to encode it as protobuf: %w", err)
	}
	var b bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(obj, &b); err != nil {
		return nil, fmt.Errorf("encoding %T as protobuf: %w", obj, err)
	}
	return b.Bytes(), nil
}

// frame encodes a watch event: a JSON object and a newline, or a length and a protobuf message.
func frame(media, kind string, data []byte) ([]byte, error) {
	if media != protobufType {
		return fmt.Appendf(nil, "{\"type\":%q,\"object\":%s}\n", kind, data), nil
	}
	event := metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: data}}
	message, err := event.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encoding a watch event: %w", err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...), nil
}

// body reads the object of a request in JSON, YAML or protobuf; nil if the request has none.
func body(r *http.Request) (*unstructured.Unstructured, error) {
	data, err := bodyBytes(r)
	if err != nil || len(data) == 0 {
		return nil, err
	}
	switch media := contentType(r); media {
	case jsonType, "":
		return parse(data)
	case "application/yaml", "application/apply-patch+yaml":
		if data, err = yaml.YAMLToJSONStrict(data); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return parse(data)
	case protobufType:
		obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return unstructuredOf(obj)
	default:
		return nil, unsupported(media, jsonType, "application/yaml", protobufType)
	}
}

func bodyBytes(r *http.Request) ([]byte, error) {
	data, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d bytes", maxBody))
	case err != nil:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("reading the request: %v", err))
	}
	return data, nil
}

func contentType(r *http.Request) string {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return r.Header.Get("Content-Type")
	}
	return media
}

func unsupported(media string, known ...string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: fmt.Sprintf("the body of the request is in %q; known are %s", media, strings.Join(known, ", ")),
	}}
}

// statusOf returns the Status for err.
func statusOf(err error) metav1.Status {
	var known apierrors.APIStatus
	status := apierrors.NewInternalError(err).Status()
	if errors.As(err, &known) {
		status = known.Status()
	}
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return status
}

func writeError(w http.ResponseWriter, media string, err error) {
	status := statusOf(err)
	data, err := json.Marshal(status)
	if err != nil { // cannot happen: a Status holds only strings and numbers
		http.Error(w, status.Message, int(status.Code))
		return
	}
	write(w, media, int(status.Code), data)
}

// writeJSON writes a document that has no protobuf form.
func writeJSON(w http.ResponseWriter, code int, v any) {
	data, err := json.Marshal(v)
	if err != nil { // cannot happen: only documents made here come this way
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	write(w, jsonType, code, data)
}

// write writes an API object that is given as JSON.
func write(w http.ResponseWriter, media string, code int, data []byte) {
	encoded, err := encode(media, data)
	if err != nil { // a field that today's types do not have or read otherwise: JSON can still carry it
		media, encoded = jsonType, data
	}
	writeAs(w, media, code, encoded)
}

// writeAs writes bytes that are already encoded in the media type.
func writeAs(w http.ResponseWriter, media string, code int, encoded []byte) {
	w.Header().Set("Content-Type", media)
	w.Header().Set("Cache-Control", "no-cache, private")
	w.WriteHeader(code)
	_, _ = w.Write(encoded) // a client that has gone away needs no answer
}
