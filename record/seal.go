package record

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"io/fs"
)

// SealFile is the seal of a run, beside the folder of its history. A run gets it when it ends.
const SealFile = "seal.json"

// HistoryDir is the name of a history's folder in the folder of its run.
const HistoryDir = "history"

const (
	sealVersion = 1
	sealBytes   = 64 << 10 // of a file, which a link of its chain covers
	linkLen     = 16       // bytes of a link
	lineLen     = 3        // bytes of a line's checksum
)

// Sealed is the outcome that a seal fixes.
type Sealed struct {
	Verdict  string `json:"verdict"`
	Early    string `json:"early,omitempty"` // why the run ended early; its verdict is invalid then
	Attempts int    `json:"attempts"`        // of measured lanes
	Dropped  int    `json:"dropped"`
	Delayed  int    `json:"delayed"`
}

// Seal is the content of seal.json. The file ends with a hash of all that is before it.
type Seal struct {
	Version int `json:"sealVersion"`
	Sealed
	HistorySha256 string       `json:"historySha256"` // see HistorySha256
	Files         []SealedFile `json:"files"`         // of the history's folder, by name
	Signer        string       `json:"signer,omitempty"`
	Signature     string       `json:"signature,omitempty"` // ed25519 in base64, of all that is before it and of the signer
}

// SealedFile is a file of a history.
type SealedFile struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	Sha256 string `json:"sha256"`
	// Chain has a link for each 64 KiB: the first 16 bytes of the SHA-256 of the link before and these bytes. It tells where a change is.
	Chain []string `json:"chain"`
	// Lines has 3 bytes of the CRC-32C of each line, in base64; none for attempts.bin.
	Lines string `json:"lines,omitempty"`
}

// SealHistory reads the files of a history's folder and returns their seal as a file, and its content. key signs it, unless it is nil.
func SealHistory(dir string, what Sealed, key ed25519.PrivateKey) ([]byte, *Seal, error) {
	h, err := OpenUnsealed(dir)
	if err != nil {
		return nil, nil, err
	}
	s := &Seal{Version: sealVersion, Sealed: what}
	if err := s.addFiles(h); err != nil {
		return nil, nil, fmt.Errorf("sealing the history in %s: %w", h.Dir(), err)
	}
	if key != nil {
		s.Signer = signerOf(key.Public().(ed25519.PublicKey))
		text, err := s.message()
		if err != nil {
			return nil, nil, err
		}
		_, s.Signature = Sign(key, text)
	}
	data, err := s.encode()
	return data, s, err
}

// addFiles reads each file once. The hash of the history is over three of them in their own order.
func (s *Seal) addFiles(h *History) error {
	entries, err := fs.ReadDir(h.files, ".")
	if err != nil {
		return err
	}
	all := sha256.New()
	found := map[string]SealedFile{}
	for _, name := range append(hashedFiles[:], namesOf(entries)...) {
		if _, done := found[name]; done {
			continue
		}
		f, err := sealFile(h.files, name, all)
		if err != nil {
			return err
		}
		found[name] = f
	}
	for _, name := range namesOf(entries) {
		s.Files = append(s.Files, found[name])
	}
	s.HistorySha256 = hex.EncodeToString(all.Sum(nil))
	return nil
}

func namesOf(entries []fs.DirEntry) []string {
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// sealFile reads a regular file. A file that is part of the history's hash is added to it.
func sealFile(files fs.FS, name string, all io.Writer) (SealedFile, error) {
	info, err := fs.Lstat(files, name)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", name)
	}
	if err != nil {
		return SealedFile{}, err
	}
	f, err := files.Open(name)
	if err != nil {
		return SealedFile{}, err
	}
	defer f.Close()
	if !hashed(name) {
		all = io.Discard
	}
	fmt.Fprintf(all, "%s %d\n", name, info.Size())
	return digest(f, name, info.Size(), all)
}

// digest reads a file of a size to its end, and copies it to w.
func digest(r io.Reader, name string, size int64, w io.Writer) (SealedFile, error) {
	f := SealedFile{Name: name, Chain: []string{}}
	whole, link := sha256.New(), []byte{}
	lines := lineSums{sum: crc32.New(castagnoli)}
	buf := make([]byte, min(sealBytes, size+1)) // a file that has grown gets other links
	for {
		n, err := io.ReadFull(r, buf)
		if n > 0 {
			block := buf[:n]
			whole.Write(block)
			_, _ = w.Write(block) // a hash, or nothing
			step := sha256.New()
			step.Write(link)
			step.Write(block)
			link = step.Sum(nil)[:linkLen]
			f.Chain = append(f.Chain, hex.EncodeToString(link))
			f.Bytes += int64(n)
			if name != AttemptsFile {
				lines.add(block)
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			f.Sha256, f.Lines = hex.EncodeToString(whole.Sum(nil)), lines.text()
			return f, nil
		}
		if err != nil {
			return f, err
		}
	}
}

// lineSums computes the checksums of lines.
type lineSums struct {
	sum  hash.Hash32
	open bool // a line has begun
	all  []byte
}

func (l *lineSums) add(data []byte) {
	for len(data) > 0 {
		line, rest, ended := bytes.Cut(data, []byte{'\n'})
		l.sum.Write(line)
		l.open = true
		if ended {
			l.end('\n')
		}
		data = rest
	}
}

func (l *lineSums) end(last ...byte) {
	l.sum.Write(last)
	l.all = append(l.all, l.sum.Sum(nil)[:lineLen]...)
	l.sum.Reset()
	l.open = false
}

func (l *lineSums) text() string {
	if l.open {
		l.end()
	}
	return base64.StdEncoding.EncodeToString(l.all)
}

// The end of a seal's text: the hash of all that is before it.
const (
	sumBegin = ",\n  \"sha256\": \""
	sumEnd   = "\"\n}\n"
	sumLen   = len(sumBegin) + 2*sha256.Size + len(sumEnd)
)

// text is the seal without its end.
func (s *Seal) text() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(s); err != nil {
		return nil, fmt.Errorf("writing the seal: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n}\n")), nil
}

// message is what a signer signs.
func (s *Seal) message() ([]byte, error) {
	unsigned := *s
	unsigned.Signature = ""
	return unsigned.text()
}

// encode is the only form in which a seal is accepted.
func (s *Seal) encode() ([]byte, error) {
	text, err := s.text()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	return append(append(append(text, sumBegin...), hex.EncodeToString(sum[:])...), sumEnd...), nil
}

var errSealDamaged = errors.New("the seal itself is damaged: its content does not fit its hash")

// parseSeal reads a seal. A seal of another version that is intact is a VersionError.
func parseSeal(data []byte) (*Seal, error) {
	n := len(data) - sumLen
	if n < 0 {
		return nil, errSealDamaged
	}
	sum := sha256.Sum256(data[:n])
	if string(data[n:]) != sumBegin+hex.EncodeToString(sum[:])+sumEnd {
		return nil, errSealDamaged
	}
	var version struct {
		Version int `json:"sealVersion"`
	}
	if json.Unmarshal(data, &version) == nil && version.Version != sealVersion {
		return nil, &VersionError{SealFile, version.Version, sealVersion}
	}
	var s struct {
		Seal
		Sum string `json:"sha256"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return nil, errSealDamaged
	}
	again, err := s.encode()
	if err != nil || !bytes.Equal(again, data) {
		return nil, errSealDamaged
	}
	return &s.Seal, nil
}

// VersionError is a seal or a history of a version that this program does not read.
type VersionError struct {
	What       string // such as seal.json
	Got, Reads int
}

// Error names both versions.
func (e *VersionError) Error() string {
	return fmt.Sprintf("%s has version %d; this program reads version %d: take the hitless that wrote it", e.What, e.Got, e.Reads)
}
