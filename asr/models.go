package asr

import "slices"

// Model is a checkpoint that is known by name.
type Model struct {
	ID        string
	Languages []string // ISO 639-1
}

// models is the table of known checkpoints. Everything that the engine computes with comes from the checkpoint itself; what is here cannot be
// read from it. An unknown checkpoint works as well, and has no language.
var models = []Model{
	{"digits", english},
	{"parakeet-tdt-0.6b-v3", europe},
	{"parakeet-tdt-0.6b-v2", english},
	{"parakeet-tdt-1.1b", english},
	{"parakeet-tdt_ctc-1.1b", english},
	{"parakeet-tdt_ctc-110m", english},
	{"parakeet-ctc-0.6b", english},
	{"parakeet-ctc-1.1b", english},
	{"parakeet-rnnt-0.6b", english},
	{"parakeet-rnnt-1.1b", english},
	{"parakeet-unified-en-0.6b", english},
}

var (
	english = []string{"en"}
	// The 25 languages of v3's model card.
	europe = []string{
		"bg", "cs", "da", "de", "el", "en", "es", "et", "fi", "fr", "hr", "hu", "it", "lt", "lv", "mt", "nl", "pl", "pt", "ro", "ru", "sk",
		"sl", "sv", "uk",
	}
)

// LookUp finds a known checkpoint.
func LookUp(id string) (Model, bool) {
	i := slices.IndexFunc(models, func(m Model) bool { return m.ID == id })
	if i < 0 {
		return Model{}, false
	}
	m := models[i]
	m.Languages = slices.Clone(m.Languages)
	return m, true
}

// languageOf is a model's language where it has exactly one: which of several was spoken is not for a guess.
func languageOf(id string) string {
	if m, ok := LookUp(id); ok && len(m.Languages) == 1 {
		return m.Languages[0]
	}
	return ""
}
