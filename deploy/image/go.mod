// The program that packs bin/hitless into an image, as a module of its own: its libraries add nothing to bin/hitless and move none
// of its modules.
module github.com/hitless/hitless/deploy/image

go 1.26.0

require (
	github.com/CycloneDX/cyclonedx-go v0.12.0
	github.com/google/go-containerregistry v0.22.1
	github.com/opencontainers/go-digest v1.0.0
	github.com/opencontainers/image-spec v1.1.1
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3
)

require (
	github.com/klauspost/compress v1.19.2 // indirect
	golang.org/x/text v0.14.0 // indirect
)
