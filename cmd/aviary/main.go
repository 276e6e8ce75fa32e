// Command aviary is Aviary: server, worker and client in one binary. See `aviary --help`.
package main

import (
	"os"

	"github.com/aviary-asr/aviary/cmd/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], cli.Standard(), backends)) }
