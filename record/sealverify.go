package record

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
)

// DamageError is a record that is not the one that was sealed, or whose seal is damaged or not signed as demanded. Its verdict is invalid.
type DamageError struct {
	Folder string // of the run
	Reason string // with file and position
}

// Error names the folder and the reason.
func (e *DamageError) Error() string {
	return fmt.Sprintf("INVALID: the record of the run in %s cannot be trusted: %s (copy the whole folder again from where the run was made, or repeat the run)", e.Folder, e.Reason)
}

// IsDamaged reports whether an error is a DamageError.
func IsDamaged(err error) bool { return errors.As(err, new(*DamageError)) }

// mostOfSeal is more than a seal has; a damaged file must not ask for more memory.
const mostOfSeal = 256 << 20

// readSeal reads the seal in the folder of a run. It is nil without an error where there is none.
func readSeal(folder fs.FS) (*Seal, error) {
	info, err := fs.Lstat(folder, SealFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the seal cannot be read: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > mostOfSeal {
		return nil, errSealDamaged
	}
	data, err := fs.ReadFile(folder, SealFile)
	if err != nil {
		return nil, fmt.Errorf("the seal cannot be read: %w", err)
	}
	return parseSeal(data)
}

// verify compares the files of a history with the seal. The error says where the first difference is.
func (s *Seal) verify(files fs.FS) error {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return unlistable(err)
	}
	for _, e := range entries {
		if !slices.ContainsFunc(s.Files, func(f SealedFile) bool { return f.Name == e.Name() }) {
			return fmt.Errorf("%s was added to the history", e.Name())
		}
	}
	for _, want := range s.Files {
		if !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == want.Name }) {
			return fmt.Errorf("%s is missing in the history", want.Name)
		}
		got, err := sealFile(files, want.Name, io.Discard)
		if err != nil {
			return fmt.Errorf("%s cannot be read: %w", want.Name, err)
		}
		if got.Bytes != want.Bytes || got.Sha256 != want.Sha256 || !slices.Equal(got.Chain, want.Chain) || got.Lines != want.Lines {
			return changed(files, want, got)
		}
	}
	for _, name := range hashedFiles {
		if !slices.ContainsFunc(s.Files, func(f SealedFile) bool { return f.Name == name }) {
			return fmt.Errorf("the seal does not cover %s", name)
		}
	}
	return nil
}

// unlistable is the error of a folder history that cannot be listed.
func unlistable(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("its folder %s is missing", HistoryDir)
	}
	return fmt.Errorf("its folder %s cannot be read: %w", HistoryDir, err)
}

// changed says where a file differs from what was sealed.
func changed(files fs.FS, want, got SealedFile) error {
	i := firstDifference(len(want.Chain), len(got.Chain), func(i int) bool { return want.Chain[i] == got.Chain[i] })
	begin := int64(i) * sealBytes
	end := min(begin+sealBytes, max(want.Bytes, got.Bytes))
	text := fmt.Sprintf("%s was changed in the bytes %d to %d", want.Name, begin, end)
	if want.Bytes != got.Bytes {
		text += fmt.Sprintf(" (it has %d bytes, %d were sealed)", got.Bytes, want.Bytes)
	}
	if want.Name == AttemptsFile {
		return errors.New(text + attemptsAt(files, begin, end))
	}
	sealed, _ := base64.StdEncoding.DecodeString(want.Lines)
	now, _ := base64.StdEncoding.DecodeString(got.Lines)
	line := firstDifference(len(sealed)/lineLen, len(now)/lineLen, func(i int) bool {
		return bytes.Equal(sealed[i*lineLen:(i+1)*lineLen], now[i*lineLen:(i+1)*lineLen])
	})
	return fmt.Errorf("%s, line %d", text, line+1)
}

// firstDifference is the first index below both lengths with a difference, or the smaller length.
func firstDifference(a, b int, equal func(int) bool) int {
	for i := range min(a, b) {
		if !equal(i) {
			return i
		}
	}
	return min(a, b)
}

// attemptsAt says which run time a range of bytes of attempts.bin is about, and which one is intact.
func attemptsAt(files fs.FS, begin, end int64) string {
	f, parts := surveyOf(files)
	if f == nil {
		return ""
	}
	defer f.Close()
	return ", " + timesText(parts, f.(io.ReaderAt), begin, end) + "; " + intactText(parts)
}

// surveyOf surveys attempts.bin; the file is nil when it cannot be read at any place.
func surveyOf(files fs.FS) (fs.File, []part) {
	f, err := files.Open(AttemptsFile)
	if err != nil {
		return nil, nil
	}
	info, err := f.Stat()
	r, random := f.(io.ReaderAt)
	if err != nil || !random {
		f.Close()
		return nil, nil
	}
	return f, survey(r, info.Size())
}

// verifySigner checks that the seal is signed with the private part of a key.
func (s *Seal) verifySigner(key ed25519.PublicKey) error {
	text, err := s.message()
	if err != nil {
		return err
	}
	return VerifySignature(key, "its seal", text, s.Signer, s.Signature)
}
