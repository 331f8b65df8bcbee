CREATE TABLE "Order_Target" (
	"Process" text collate "C" NOT NULL,
	"Target" text collate "C" NOT NULL,
	"NextCallAt" timestamp with time zone NOT NULL,
	"Slots" jsonb DEFAULT '{}'::jsonb NOT NULL,
	CONSTRAINT "Order_Target_Process_Target_pk" PRIMARY KEY("Process","Target")
);
