package main

import (
	"github.com/aviary-asr/aviary/asr/ml"
	"github.com/aviary-asr/aviary/asr/ml/cpu"
	"github.com/aviary-asr/aviary/cmd/internal/cli"
)

// backends are the kinds of devices that this binary can use, the best first.
var backends = []cli.Backend{
	{
		Name:        "cpu",
		Devices:     func() ([]string, error) { return []string{"cpu"}, nil },
		Open:        func(string) (ml.Backend, error) { return cpu.New(cpu.Options{}), nil },
		BFloat16:    func(string) bool { return false }, // plain Go widens every weight: it saves memory and costs speed
		MemoryBytes: func(string) (int64, error) { return cli.HostMemoryBytes() },
		HostMemory:  true,
	},
}
