package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/asr"
	"github.com/aviary-asr/aviary/asr/checkpoint"
	"github.com/aviary-asr/aviary/asr/ml"
	"github.com/aviary-asr/aviary/gpu"
	"github.com/aviary-asr/aviary/models"
)

// Backend is a kind of device that a binary was built with. Each binary lists its backends in its backends.go, the best first.
type Backend struct {
	Name    string                   // "cpu", "cuda"
	Devices func() ([]string, error) // names of the devices of this machine: "cpu", "cuda:0"
	// Open's errors are the device's: it is left out, and the others are used.
	Open func(device string) (ml.Backend, error)
	// BFloat16 says whether auto chooses bfloat16 weights on the device: where it computes in them.
	BFloat16 func(device string) bool
	// MemoryBytes is what a job may use of the device at most, weights included, before the safety factor.
	MemoryBytes func(device string) (int64, error)
	HostMemory  bool // the device computes in the host's memory
	// Engine builds an engine of its own; if set it is used instead of Open and of the model.
	Engine func(ctx context.Context, device string) (gpu.Engine, error)
}

// chosenDevice is a device by name, and who opens it.
type chosenDevice struct {
	name    string
	backend Backend
}

// chooseDevices resolves PARAKEET_DEVICE: auto is all devices of the first backend that has any.
func chooseDevices(want string, backends []Backend) ([]chosenDevice, error) {
	var all []string
	for _, b := range backends {
		names, err := b.Devices()
		if err != nil {
			return nil, fmt.Errorf("devices of %s: %w", b.Name, err)
		}
		all = append(all, names...)
		chosen := pickDevices(want, b, names)
		if len(chosen) > 0 {
			return chosen, nil
		}
	}
	return nil, usageError(fmt.Errorf("PARAKEET_DEVICE=%q: this binary and machine have %s", want, strings.Join(all, ", ")))
}

// pickDevices gives those of a backend's devices that want names: auto, cpu, cuda:all, cuda:0,2.
func pickDevices(want string, b Backend, names []string) []chosenDevice {
	var chosen []chosenDevice
	for _, name := range names {
		kind, index, _ := strings.Cut(name, ":")
		wantKind, wantIndices, some := strings.Cut(want, ":")
		match := want == "auto" || want == name || want == kind+":all" ||
			some && wantKind == kind && slices.Contains(strings.Split(wantIndices, ","), index)
		if match {
			chosen = append(chosen, chosenDevice{name, b})
		}
	}
	return chosen
}

// openModel opens the bundled model, or the one that lies at path.
func openModel(path string) (*checkpoint.Checkpoint, error) {
	if path == "" {
		return checkpoint.OpenFS(models.Digits())
	}
	return checkpoint.Open(path)
}

// engine builds the engine. It runs on the device's thread. An error of the device has CodeDeviceFailed or CodeDeviceOutOfMemory; the others are of the model.
func (c chosenDevice) engine(ctx context.Context, s Settings, model *checkpoint.Checkpoint) (gpu.Engine, error) {
	if c.backend.Engine != nil {
		engine, err := c.backend.Engine(ctx, c.name)
		return engine, deviceError(err)
	}
	backend, err := c.backend.Open(c.name)
	if err != nil {
		return nil, deviceError(err)
	}
	memory, err := c.backend.MemoryBytes(c.name)
	if err != nil {
		return nil, deviceError(errors.Join(err, backend.Close()))
	}
	dtype := ml.Float32
	if s.BF16 == BF16On || s.BF16 == BF16Auto && c.backend.BFloat16(c.name) {
		dtype = ml.BFloat16
	}
	return asr.New(ctx, model, backend, asr.Options{
		Model: modelName(s.Model), DType: dtype, Software: "aviary " + version(),
		Settings: asr.Settings{Policy: s.Attention, MemoryBudget: int64(float64(memory) * s.SafetyFactor), SharedMemory: c.backend.HostMemory},
	})
}

// deviceError marks an error of opening a device as the device's.
func deviceError(err error) error {
	if err == nil || aviary.CodeOf(err) == aviary.CodeDeviceOutOfMemory {
		return err
	}
	return aviary.WrapError(aviary.CodeDeviceFailed, "device.open", err, "The device cannot be opened.")
}

// modelName is what transcripts call the model: the last element of its path.
func modelName(path string) string {
	if path == "" {
		return models.DigitsName
	}
	return strings.TrimSuffix(filepath.Base(filepath.Clean(path)), ".nemo")
}
