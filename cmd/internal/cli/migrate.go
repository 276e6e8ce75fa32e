package cli

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/aviary-asr/aviary/store"
)

func (a *app) migrateCommand() *cobra.Command {
	entries := settingsTable(&a.settings)
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database's schema up to date (serve does it by itself when it starts)",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := applyVariables(cmd.Flags(), entries, a.Lookup); err != nil {
				return err
			}
			url := a.settings.DatabaseURL
			if url == "" {
				url = "sqlite:" + filepath.Join(a.settings.DataDir, "aviary.db")
			}
			m, err := store.Migrate(cmd.Context(), url, store.Options{})
			if err != nil {
				return err
			}
			if a.json {
				return printJSON(a.Out, m)
			}
			_, err = fmt.Fprintf(a.Out, "schema version %d, was %d\n", m.To, m.From)
			return err
		},
	}
	for _, s := range entries {
		if s.variable == "AVIARY_DATABASE_URL" || s.variable == "AVIARY_DATA_DIR" {
			addFlags(cmd.Flags(), []setting{s})
		}
	}
	return cmd
}
