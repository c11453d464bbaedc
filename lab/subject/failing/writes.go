package failing

import (
	"slices"
	"strings"
)

// The words by which a call writes. A call without one asks a question, such as whether a chain exists.
var (
	writesRules = strings.Fields("-A -D -I -R -N -X -E -P -F -Z " +
		"--append --delete --insert --replace --new-chain --delete-chain --rename-chain --policy --flush --zero")
	writesTables = strings.Fields("add create insert replace delete destroy flush rename reset -f --file")
	writesSets   = strings.Fields("create add del restore destroy flush swap rename -N -A -D -R -X -F -W -E")
	// onlyAsks are the options with which nft and iptables-restore change nothing.
	onlyAsks = strings.Fields("-c --check -t --test -V --version -v -h --help")
)

// writes reports whether a call of a program would have changed rules. Other calls are no sync: a proxy also asks for versions, and looks
// whether its chains are still there.
func writes(name string, args []string) bool {
	words := strings.Fields(strings.Join(args, " "))
	has := func(some []string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(some, w) })
	}
	switch {
	case strings.HasSuffix(name, "-restore"):
		return !has(onlyAsks)
	case name == "nft":
		return has(writesTables) && !has(onlyAsks)
	case name == "ipset":
		return has(writesSets)
	}
	return has(writesRules)
}
