"""Why a request waits, or waited: noted as it happens, told when somebody asks."""
